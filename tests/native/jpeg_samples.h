#pragma once

#include <algorithm>
#include <cmath>
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>  // jpeglib.h uses FILE and size_t without including them
#include <cstring>
#include <vector>

#include <jpeglib.h>

#include "image/jpeg/libjpeg/layouts.h"
#include "random.h"

// JPEGs made in memory, for tests and fuzzing: no picture is stored in the repository.

namespace fastloader::testing {

struct JpegSpec {
  uint32_t width = 16;
  uint32_t height = 16;
  J_COLOR_SPACE stored = JCS_YCbCr;  ///< JCS_UNKNOWN is a file of two components
  JpegSampling sampling[kMaxJpegComponents] = {};
  int quality = 85;
  bool progressive = false;
  std::vector<jpeg_scan_info> scans;  ///< of a progressive file; none: libjpeg's own
  bool incomplete = false;            ///< progressive, the last bits of the coefficients left out
  bool separate_scans = false;        ///< sequential, one scan per component
  bool optimize = false;
  bool arithmetic = false;
  bool tables = true;  ///< with quantisation tables
  unsigned restart_blocks = 0;
  int restart_rows = 0;
  uint64_t seed = 1;

  int components() const {
    switch (stored) {
      case JCS_GRAYSCALE:
        return 1;
      case JCS_UNKNOWN:
        return 2;
      case JCS_CMYK:
      case JCS_YCCK:
        return 4;
      default:
        return 3;
    }
  }

  J_COLOR_SPACE given() const {
    switch (stored) {
      case JCS_GRAYSCALE:
      case JCS_UNKNOWN:
        return stored;
      case JCS_CMYK:
      case JCS_YCCK:
        return JCS_CMYK;
      default:
        return JCS_RGB;
    }
  }
};

/// Smooth waves and some noise, different in every channel.
inline std::vector<uint8_t> make_pixels(uint32_t width, uint32_t height, int channels,
                                        uint64_t seed) {
  Random random(seed);
  std::vector<uint8_t> pixels;
  pixels.reserve(size_t{width} * height * static_cast<size_t>(channels));
  double wave[kMaxJpegComponents][3];
  for (auto& one : wave) {
    one[0] = random.below(1000) / 4000.0;
    one[1] = random.below(1000) / 4000.0;
    one[2] = random.below(1000) / 160.0;
  }
  const uint32_t noise = random.between(1, 60);
  for (uint32_t y = 0; y < height; ++y) {
    for (uint32_t x = 0; x < width; ++x) {
      for (int c = 0; c < channels; ++c) {
        const double smooth = 128 + 110 * std::sin(wave[c][0] * x + wave[c][1] * y + wave[c][2]);
        const double value = smooth + random.below(noise) - noise / 2.0;
        pixels.push_back(static_cast<uint8_t>(std::clamp(value, 0.0, 255.0)));
      }
    }
  }
  return pixels;
}

namespace samples_detail {

struct Encoder {
  jpeg_compress_struct info;
  jpeg_error_mgr errors;
  jpeg_destination_mgr destination;
  std::jmp_buf escape;
  jpeg_scan_info scans[16];
};

[[noreturn]] inline void on_error(j_common_ptr info) {
  std::longjmp(static_cast<Encoder*>(info->client_data)->escape, 1);
}

inline void choose_scans(Encoder& encoder, const JpegSpec& spec) {
  const int components = spec.components();
  int count = 0;
  const auto add = [&](int component, int ss, int se, int ah, int al) {
    encoder.scans[count++] = {1, {component, 0, 0, 0}, ss, se, ah, al};
  };
  if (spec.incomplete) {
    // What a scan script looks like whose refinements were lost.
    for (int c = 0; c < components; ++c) add(c, 0, 0, 0, 1);
    for (int c = 0; c < components; ++c) add(c, 1, 5, 0, 2);
  } else if (spec.separate_scans) {
    for (int c = 0; c < components; ++c) add(c, 0, 63, 0, 0);
  }
  if (count == 0) return;
  encoder.info.scan_info = encoder.scans;
  encoder.info.num_scans = count;
}

inline void write(Encoder& encoder, const JpegSpec& spec, const uint8_t* pixels) {
  jpeg_compress_struct& info = encoder.info;
  jpeg_create_compress(&info);
  info.dest = &encoder.destination;
  info.image_width = spec.width;
  info.image_height = spec.height;
  info.input_components = spec.components();
  info.in_color_space = spec.given();
  jpeg_set_defaults(&info);
  jpeg_set_colorspace(&info, spec.stored);
  jpeg_set_quality(&info, spec.quality, TRUE);
  for (int c = 0; c < spec.components(); ++c) {
    info.comp_info[c].h_samp_factor = spec.sampling[c].horizontal;
    info.comp_info[c].v_samp_factor = spec.sampling[c].vertical;
  }
  info.optimize_coding = spec.optimize ? TRUE : FALSE;
  info.arith_code = spec.arithmetic ? TRUE : FALSE;
  info.restart_interval = spec.restart_blocks;
  info.restart_in_rows = spec.restart_rows;
  if (spec.progressive) jpeg_simple_progression(&info);
  choose_scans(encoder, spec);
  if (!spec.scans.empty()) {
    info.scan_info = spec.scans.data();
    info.num_scans = static_cast<int>(spec.scans.size());
  }
  if (!spec.tables) jpeg_suppress_tables(&info, TRUE);
  jpeg_start_compress(&info, spec.tables ? TRUE : FALSE);
  const size_t stride = size_t{spec.width} * static_cast<size_t>(spec.components());
  while (info.next_scanline < info.image_height) {
    JSAMPROW row = const_cast<JSAMPROW>(pixels + info.next_scanline * stride);
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
}

inline bool run(Encoder& encoder, const JpegSpec& spec, const uint8_t* pixels) {
  if (setjmp(encoder.escape) != 0) return false;
  write(encoder, spec, pixels);
  return true;
}

}  // namespace samples_detail

/// Empty when libjpeg cannot write such a file.
inline std::vector<uint8_t> make_jpeg(const JpegSpec& spec) {
  using samples_detail::Encoder;
  const std::vector<uint8_t> pixels =
      make_pixels(spec.width, spec.height, spec.components(), spec.seed);
  std::vector<uint8_t> out(pixels.size() * 8 + 65536);
  auto encoder = std::vector<Encoder>(1);
  Encoder& e = encoder[0];
  std::memset(&e, 0, sizeof e);
  e.info.err = jpeg_std_error(&e.errors);
  e.errors.error_exit = samples_detail::on_error;
  e.info.client_data = &e;
  e.destination.init_destination = [](j_compress_ptr) {};
  e.destination.term_destination = [](j_compress_ptr) {};
  e.destination.empty_output_buffer = [](j_compress_ptr info) -> boolean {
    samples_detail::on_error(reinterpret_cast<j_common_ptr>(info));
  };
  e.destination.next_output_byte = out.data();
  e.destination.free_in_buffer = out.size();
  const bool written = samples_detail::run(e, spec, pixels.data());
  out.resize(written ? out.size() - e.destination.free_in_buffer : 0);
  jpeg_destroy_compress(&e.info);
  return out;
}

inline void set_layout(JpegSpec& spec, const JpegLayout& layout, Random& random) {
  if (layout.components == 1) spec.stored = JCS_GRAYSCALE;
  if (layout.components == 3) spec.stored = random.chance(20) ? JCS_RGB : JCS_YCbCr;
  if (layout.components == 4) spec.stored = random.chance(50) ? JCS_CMYK : JCS_YCCK;
  for (int c = 0; c < layout.components; ++c) spec.sampling[c] = layout.sampling[c];
}

/// Everything but stored colours and sampling.
inline JpegSpec random_spec(Random& random, uint32_t largest) {
  JpegSpec spec;
  spec.width = random.between(1, largest);
  spec.height = random.between(1, largest);
  spec.quality = static_cast<int>(random.between(20, 100));
  spec.progressive = random.chance(40);
  spec.separate_scans = !spec.progressive && random.chance(20);
  spec.optimize = random.chance(30);
  if (random.chance(30)) spec.restart_blocks = random.between(1, 9);
  if (random.chance(15)) spec.restart_rows = static_cast<int>(random.between(1, 2));
  spec.seed = random.next();
  return spec;
}

}  // namespace fastloader::testing
