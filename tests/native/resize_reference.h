#pragma once

// What a resize must give, from the published definition and without any of the code under test:
// each output sample is a weighted mean of the input samples around its centre, in double; weights
// are rounded to 22 bits of fraction, and each pass to 8 bits.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "image/resize/resizer.h"

namespace fastloader::testing {

struct Image {
  size_t width;
  size_t height;
  size_t channels;
  std::vector<uint8_t> bytes;

  Image(size_t w, size_t h, size_t c) : width(w), height(h), channels(c), bytes(w * h * c) {}
  uint8_t& at(size_t x, size_t y, size_t c) { return bytes[(y * width + x) * channels + c]; }
  uint8_t at(size_t x, size_t y, size_t c) const { return bytes[(y * width + x) * channels + c]; }
};

inline double reference_filter(ResizeFilter filter, double x) {
  const double d = x < 0 ? -x : x;
  if (filter == ResizeFilter::kBox) return x > -0.5 && x <= 0.5 ? 1 : 0;
  if (filter == ResizeFilter::kBilinear) return d < 1 ? 1 - d : 0;
  if (filter == ResizeFilter::kHamming) {
    // Pillow's two numbers are floats.
    const double turns = std::cos(M_PI * d);
    return d == 0 ? 1 : d < 1 ? std::sin(M_PI * d) / (M_PI * d) * (0.54f + 0.46f * turns) : 0;
  }
  if (filter == ResizeFilter::kLanczos) {
    const auto sinc = [](double y) { return y == 0 ? 1 : std::sin(M_PI * y) / (M_PI * y); };
    return d < 3 ? sinc(d) * sinc(d / 3) : 0;
  }
  if (d < 1) return (1.5 * d - 2.5) * d * d + 1;
  if (d < 2) return (((d - 5) * d + 8) * d - 4) * -0.5;
  return 0;
}

/// How far from its centre a filter is not 0.
inline double reference_reach(ResizeFilter filter) {
  switch (filter) {
    case ResizeFilter::kBox:
      return 0.5;
    case ResizeFilter::kBilinear:
    case ResizeFilter::kHamming:
      return 1;
    case ResizeFilter::kBicubic:
      return 2;
    case ResizeFilter::kLanczos:
      return 3;
  }
  return 0;
}

struct ReferenceTap {
  size_t sample;
  int64_t weight;
};

inline std::vector<ReferenceTap> reference_taps(size_t in, float begin, float end, size_t out,
                                                ResizeFilter filter, size_t index) {
  const double scale = static_cast<double>(end - begin) / static_cast<double>(out);
  const double stretch = scale > 1 ? scale : 1;
  const double radius = stretch * reference_reach(filter);
  const double center = static_cast<double>(begin) + (static_cast<double>(index) + 0.5) * scale;
  const auto from = static_cast<int64_t>(center - radius + 0.5);
  const auto to = static_cast<int64_t>(center + radius + 0.5);
  std::vector<size_t> samples;
  std::vector<double> weights;
  double total = 0;
  for (int64_t i = std::max<int64_t>(from, 0); i < std::min(to, static_cast<int64_t>(in)); ++i) {
    samples.push_back(static_cast<size_t>(i));
    const double distance = (static_cast<double>(i) - center + 0.5) * (1 / stretch);
    weights.push_back(reference_filter(filter, distance));
    total += weights.back();
  }
  std::vector<ReferenceTap> taps;
  for (size_t i = 0; i < samples.size(); ++i) {
    const double weight = (total == 0 ? weights[i] : weights[i] / total) * 4194304.0;
    taps.push_back(
        {samples[i], static_cast<int64_t>(std::trunc(weight + (weight < 0 ? -0.5 : 0.5)))});
  }
  return taps;
}

inline uint8_t reference_round(int64_t sum) {
  const auto value =
      static_cast<int64_t>(std::floor((static_cast<double>(sum) + 2097152) / 4194304));
  return static_cast<uint8_t>(std::clamp<int64_t>(value, 0, 255));
}

inline Image reference_across(const Image& in, float begin, float end, size_t out,
                              ResizeFilter filter) {
  Image result(out, in.height, in.channels);
  for (size_t x = 0; x < out; ++x) {
    const auto taps = reference_taps(in.width, begin, end, out, filter, x);
    for (size_t y = 0; y < in.height; ++y) {
      for (size_t c = 0; c < in.channels; ++c) {
        int64_t sum = 0;
        for (const ReferenceTap& tap : taps) sum += tap.weight * in.at(tap.sample, y, c);
        result.at(x, y, c) = reference_round(sum);
      }
    }
  }
  return result;
}

inline Image turned(const Image& in) {
  Image result(in.height, in.width, in.channels);
  for (size_t y = 0; y < in.height; ++y) {
    for (size_t x = 0; x < in.width; ++x) {
      for (size_t c = 0; c < in.channels; ++c) result.at(y, x, c) = in.at(x, y, c);
    }
  }
  return result;
}

inline Image reference_down(const Image& in, float begin, float end, size_t out,
                            ResizeFilter filter) {
  return turned(reference_across(turned(in), begin, end, out, filter));
}

inline Image reference_resize(const ResizeSpec& spec, const Image& in) {
  const float right = spec.box ? spec.box->right : static_cast<float>(in.width);
  const float bottom = spec.box ? spec.box->bottom : static_cast<float>(in.height);
  const float left = spec.box ? spec.box->left : 0;
  const float top = spec.box ? spec.box->top : 0;
  const auto across = [&](const Image& from) {
    return reference_across(from, left, right, spec.out_width, spec.filter);
  };
  const auto down = [&](const Image& from) {
    return reference_down(from, top, bottom, spec.out_height, spec.filter);
  };
  const auto shrinks_by = [](size_t from, size_t to) {
    return static_cast<int64_t>(from) - static_cast<int64_t>(to);
  };
  const int64_t shrinks_across = shrinks_by(spec.in_width, spec.out_width);
  const int64_t shrinks_down = shrinks_by(spec.in_height, spec.out_height);
  bool down_first = false;
  if (spec.order == ResizeOrder::kPillow13) {
    down_first = shrinks_down > 0 && shrinks_down > 2 * shrinks_across;
  } else if (spec.order == ResizeOrder::kPillow12_2) {
    down_first = shrinks_down > 0 && spec.in_height > spec.in_width * 100;
  }
  // A pass that changes nothing has weights of 1: there is no need to leave it out here.
  const Image resized = down_first ? across(down(in)) : down(across(in));
  const CropBox made = spec.window ? *spec.window : CropBox{0, 0, spec.out_width, spec.out_height};
  Image result(made.width, made.height, in.channels);
  for (size_t y = 0; y < result.height; ++y) {
    for (size_t x = 0; x < result.width; ++x) {
      for (size_t c = 0; c < result.channels; ++c) {
        result.at(x, y, c) =
            resized.at(made.left + (spec.horizontal_flip ? made.width - 1 - x : x),
                       made.top + (spec.vertical_flip ? made.height - 1 - y : y), c);
      }
    }
  }
  return result;
}

/// Deterministic, and the same wherever it is written down: a linear congruential generator's upper
/// bytes.
class Random {
 public:
  explicit Random(uint32_t seed) : state_(seed) {}
  uint8_t byte() {
    state_ = state_ * 1664525u + 1013904223u;
    return static_cast<uint8_t>(state_ >> 24);
  }
  size_t below(size_t count) {
    const size_t bits =
        static_cast<size_t>(byte()) << 16 | static_cast<size_t>(byte()) << 8 | byte();
    return bits % count;
  }
  size_t between(size_t first, size_t last) { return first + below(last - first + 1); }
  bool one_in(size_t count) { return below(count) == 0; }

 private:
  uint32_t state_;
};

/// Noise, or only black and white, which makes a cubic filter overshoot on both sides.
inline Image random_image(size_t width, size_t height, size_t channels, Random& random) {
  Image image(width, height, channels);
  const bool harsh = random.one_in(3);
  for (uint8_t& byte : image.bytes) {
    byte = random.byte();
    if (harsh) byte = byte < 128 ? 0 : 255;
  }
  return image;
}

// ---- The cases to try ---------------------------------------------------------------------------

inline ResizeSpec make_spec(size_t in_width, size_t in_height, size_t out_width, size_t out_height,
                            size_t channels = 3, ResizeFilter filter = ResizeFilter::kBilinear) {
  ResizeSpec spec;
  spec.in_width = in_width;
  spec.in_height = in_height;
  spec.out_width = out_width;
  spec.out_height = out_height;
  spec.channels = channels;
  spec.filter = filter;
  return spec;
}

inline std::string describe(const ResizeSpec& s) {
  std::ostringstream text;
  text << s.in_width << "x" << s.in_height << " -> " << s.out_width << "x" << s.out_height << " c"
       << s.channels << " filter " << static_cast<int>(s.filter) << " order "
       << static_cast<int>(s.order) << (s.horizontal_flip ? " hflip" : "")
       << (s.vertical_flip ? " vflip" : "");
  if (s.box) {
    text << " box " << s.box->left << " " << s.box->top << " " << s.box->right << " "
         << s.box->bottom;
  }
  if (s.window) {
    text << " window " << s.window->width << "x" << s.window->height << " at " << s.window->left
         << " " << s.window->top;
  }
  return text.str();
}

/// Bytes with an untouchable page right before or right after them.
class Fenced {
 public:
  Fenced(size_t bytes, bool at_end) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t body = (bytes + page - 1) / page * page;
    total_ = body + 2 * page;
    void* mapped =
        mmap(nullptr, total_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) std::abort();
    mapped_ = static_cast<uint8_t*>(mapped);
    if (mprotect(mapped_, page, PROT_NONE) != 0) std::abort();
    if (mprotect(mapped_ + page + body, page, PROT_NONE) != 0) std::abort();
    begin_ = mapped_ + page + (at_end ? body - bytes : 0);
  }
  Fenced(const Fenced&) = delete;
  Fenced& operator=(const Fenced&) = delete;
  ~Fenced() { munmap(mapped_, total_); }
  uint8_t* begin() const { return begin_; }

 private:
  uint8_t* mapped_;
  uint8_t* begin_;
  size_t total_;
};

}  // namespace fastloader::testing
