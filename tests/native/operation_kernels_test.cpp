// What operations make does not depend on the instruction set, nor on where in memory pixels lie.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "check.h"
#include "image/dispatch.h"
#include "image/ops/kernels/colour.h"
#include "image/ops/kernels/filter.h"
#include "image/ops/kernels/warp.h"
#include "operation_samples.h"

namespace fastloader {
namespace {

using namespace testing;

using Bytes = std::vector<uint8_t>;

constexpr size_t kRgb = Canvas::kRgb;

/// All but the scalar one, which the others are compared with.
std::vector<const Isa*> other_isas() {
  std::vector<const Isa*> isas;
  for (const std::string& name : available_isa_names()) {
    if (name != "scalar") isas.push_back(&isa_by_name(name));
  }
  return isas;
}

Bytes random_bytes(size_t count, Random& random) {
  return random_image(std::max<size_t>(count, 1), 1, 1, random).bytes;
}

float random_factor(Random& random) {
  constexpr float kFactors[] = {0, 1, 0.5f, -1, 300, -300, 3e38f, -3e38f, 1e-38f};
  if (random.one_in(3)) return kFactors[random.below(std::size(kFactors))];
  return static_cast<float>(random.below(1 << 16)) / (1 << 14) - 1;
}

/// A block whose last byte is the last that there is (what is read or written behind it, a
/// sanitizer sees), and whose first has any alignment.
class Block {
 public:
  Block(const Bytes& bytes, size_t offset)
      : memory_(new uint8_t[bytes.size() + offset]), size_(bytes.size()), offset_(offset) {
    std::memset(memory_.get(), 0xa5, offset);
    std::memcpy(begin(), bytes.data(), bytes.size());
  }
  uint8_t* begin() { return memory_.get() + offset_; }
  Bytes bytes() { return Bytes(begin(), begin() + size_); }
  bool nothing_before_changed() const {
    for (size_t i = 0; i < offset_; ++i) {
      if (memory_[i] != 0xa5) return false;
    }
    return true;
  }

 private:
  std::unique_ptr<uint8_t[]> memory_;
  size_t size_;
  size_t offset_;
};

// ---- Whole operations ---------------------------------------------------------------------------

Bytes made_by(Canvas& canvas, const ImageSize& size, const Bytes& picture,
              const Operation& operation) {
  std::memcpy(canvas.begin(size), picture.data(), picture.size());
  apply(operation, canvas);
  return Bytes(canvas.pixels(), canvas.pixels() + canvas.bytes());
}

TEST(every_operation_makes_the_same_bytes_on_every_instruction_set) {
  Random random(1);
  OperationSamples samples(random);
  Canvas scalar(isa_by_name("scalar"));
  for (const Isa* isa : other_isas()) {
    Canvas canvas(*isa);
    EXPECT(&canvas.isa() == isa);
    for (int round = 0; round < 6000; ++round) {
      const ImageSize size{random_edge(random), random_edge(random)};
      const Operation operation = samples.make(size);
      const Bytes picture = random_image(size.width, size.height, kRgb, random).bytes;
      Bytes expected;
      try {
        expected = made_by(scalar, size, picture, operation);
      } catch (const InvalidArgument&) {
        continue;  // too small a picture
      }
      if (made_by(canvas, size, picture, operation) != expected) {
        throw Failure{std::string(isa->name) + ": " + describe(operation, size)};
      }
    }
  }
}

// ---- Colours ------------------------------------------------------------------------------------

/// Calls change(kernels, bytes, pixels) with every alignment and many lengths. What it makes must
/// be what it makes with the scalar kernels.
template <class Change>
void compare_colours(const Change& change) {
  Random random(2);
  for (const Isa* isa : other_isas()) {
    for (size_t pixels = 1; pixels <= 600; pixels += pixels < 70 ? 1 : 37) {
      const Bytes before = random_bytes(pixels * kRgb, random);
      Block expected(before, 0);
      Random numbers(static_cast<uint32_t>(pixels));
      change(kColourScalar, expected.begin(), pixels, numbers);
      for (size_t offset = 0; offset < 64; offset += pixels < 40 ? 1 : 7) {
        Block made(before, offset);
        Random same_numbers(static_cast<uint32_t>(pixels));
        change(*isa->colour, made.begin(), pixels, same_numbers);
        if (made.bytes() != expected.bytes() || !made.nothing_before_changed()) {
          throw Failure{std::string(isa->name) + ": " + std::to_string(pixels) +
                        " pixels, alignment " + std::to_string(offset)};
        }
      }
    }
  }
}

TEST(blends_of_bytes_are_the_same) {
  compare_colours([](const ColourKernels& kernels, uint8_t* rgb, size_t pixels, Random& random) {
    const uint8_t other = random.byte();
    // Also of counts that are no whole pixels.
    kernels.blend(other, random_factor(random), rgb, pixels * kRgb - random.below(3));
  });
}

TEST(saturations_are_the_same) {
  compare_colours([](const ColourKernels& kernels, uint8_t* rgb, size_t pixels, Random& random) {
    kernels.saturate(random_factor(random), rgb, pixels);
  });
}

TEST(greys_are_the_same) {
  compare_colours([](const ColourKernels& kernels, uint8_t* rgb, size_t pixels, Random&) {
    kernels.grayscale(rgb, pixels);
  });
}

TEST(hues_are_the_same) {
  compare_colours([](const ColourKernels& kernels, uint8_t* rgb, size_t pixels, Random& random) {
    kernels.hue(random.byte(), rgb, pixels);
  });
}

TEST(sums_of_greys_are_the_same) {
  Random random(3);
  for (const Isa* isa : other_isas()) {
    for (size_t pixels = 1; pixels <= 600; pixels += pixels < 70 ? 1 : 37) {
      Block block(random_bytes(pixels * kRgb, random), random.below(64));
      EXPECT_EQ(isa->colour->sum_of_greys(block.begin(), pixels),
                kColourScalar.sum_of_greys(block.begin(), pixels));
    }
  }
}

/// All colours, one red after the other.
TEST(all_colours_have_the_same_hue_and_grey) {
  constexpr size_t kPixels = 1 << 16;
  Bytes colours(kPixels * kRgb);
  Random random(4);
  for (const Isa* isa : other_isas()) {
    for (size_t red = 0; red < 256; ++red) {
      for (size_t i = 0; i < kPixels; ++i) {
        colours[i * kRgb] = static_cast<uint8_t>(red);
        colours[i * kRgb + 1] = static_cast<uint8_t>(i >> 8);
        colours[i * kRgb + 2] = static_cast<uint8_t>(i);
      }
      EXPECT_EQ(isa->colour->sum_of_greys(colours.data(), kPixels),
                kColourScalar.sum_of_greys(colours.data(), kPixels));
      const uint8_t shift = random.byte();
      Bytes expected = colours;
      Bytes made = colours;
      kColourScalar.hue(shift, expected.data(), kPixels);
      isa->colour->hue(shift, made.data(), kPixels);
      EXPECT(made == expected);
    }
  }
}

// ---- Filters ------------------------------------------------------------------------------------

HalfKernel random_kernel(size_t reach, Random& random) {
  HalfKernel kernel;
  kernel.reach = reach;
  float sum = 0;
  for (size_t k = 0; k <= reach; ++k) {
    kernel.weights[k] = static_cast<float>(1 + random.below(1000));
    sum += kernel.weights[k] * (k == 0 ? 1 : 2);
  }
  for (size_t k = 0; k <= reach; ++k) kernel.weights[k] /= sum;
  return kernel;
}

TEST(both_passes_of_a_gaussian_blur_are_the_same) {
  Random random(5);
  for (const Isa* isa : other_isas()) {
    for (int round = 0; round < 3000; ++round) {
      const size_t bytes = kRgb * random.between(1, round % 2 == 0 ? 12 : 90);
      const size_t reach = random.below(9);
      const HalfKernel kernel = random_kernel(reach, random);
      std::vector<Block> blocks;
      for (size_t k = 0; k <= 2 * reach; ++k) {
        blocks.emplace_back(random_bytes(bytes, random), random.below(64));
      }
      RowsAround rows;
      rows.middle = blocks[0].begin();
      for (size_t k = 1; k <= reach; ++k) {
        rows.above[k] = blocks[2 * k - 1].begin();
        rows.below[k] = blocks[2 * k].begin();
      }
      std::vector<float> expected(bytes);
      std::vector<float> made(bytes);
      kFilterScalar.blur_down(rows, kernel, bytes, expected.data());
      isa->filter->blur_down(rows, kernel, bytes, made.data());
      EXPECT(std::memcmp(made.data(), expected.data(), bytes * sizeof(float)) == 0);

      const size_t margin = reach * kRgb;
      std::vector<float> line(bytes + 2 * margin);
      for (float& number : line) number = static_cast<float>(random.below(255 * 512 + 1)) / 512;
      Bytes expected_row(bytes);
      Block row(expected_row, random.below(64));
      kFilterScalar.blur_along(line.data() + margin, kernel, bytes, expected_row.data());
      isa->filter->blur_along(line.data() + margin, kernel, bytes, row.begin());
      EXPECT(row.bytes() == expected_row && row.nothing_before_changed());
    }
  }
}

TEST(rows_are_sharpened_alike) {
  Random random(6);
  for (const Isa* isa : other_isas()) {
    for (int round = 0; round < 3000; ++round) {
      const size_t bytes = kRgb * random.between(1, round % 2 == 0 ? 12 : 90);
      const size_t read = bytes + 2 * kRgb;
      Block above(random_bytes(read, random), random.below(64));
      Block row(random_bytes(read, random), random.below(64));
      Block below(random_bytes(read, random), random.below(64));
      const float factor = random_factor(random);
      Bytes expected(bytes);
      Block made(expected, random.below(64));
      kFilterScalar.sharpen(above.begin(), row.begin(), below.begin(), bytes, factor,
                            expected.data());
      isa->filter->sharpen(above.begin(), row.begin(), below.begin(), bytes, factor, made.begin());
      EXPECT(made.bytes() == expected && made.nothing_before_changed());
    }
  }
}

TEST(lines_are_blurred_alike) {
  Random random(9);
  for (const Isa* isa : other_isas()) {
    for (int round = 0; round < 2000; ++round) {
      const size_t lines = random.between(1, random.one_in(3) ? 4 : 60);
      Box box;
      box.radius = static_cast<uint32_t>(random.below(round % 4 == 0 ? 90 : 5));
      const auto most = (uint32_t{1} << 24) / (2 * box.radius + 1);
      box.whole = most - static_cast<uint32_t>(random.below(most / 4 + 1));
      box.part = ((uint32_t{1} << 24) - (2 * box.radius + 1) * box.whole) / 2;
      Block in(random_bytes(lines * kBoxLine, random), random.below(64));
      Bytes expected(lines * kBoxLine);
      Block made(expected, random.below(64));
      kFilterScalar.box_pass(in.begin(), lines, box, expected.data());
      isa->filter->box_pass(in.begin(), lines, box, made.begin());
      EXPECT(made.bytes() == expected && made.nothing_before_changed());
    }
  }
}

// ---- Warps --------------------------------------------------------------------------------------

/// Within the picture, next to its edges, on whole and half pixels, far outside, and nowhere.
double random_place(double edge, Random& random) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double places[] = {0,          -0.0,         edge,       std::nextafter(edge, 0.0),
                           -1e-300,    0.5,          edge - 0.5, kInfinity,
                           -kInfinity, std::nan(""), 1e300,      edge + 0.0001,
                           0.25};
  if (random.one_in(6)) return places[random.below(std::size(places))];
  const double place = edge * static_cast<double>(random.below(1 << 23)) / (1 << 23);
  return random.one_in(4) ? std::floor(place) + 0.5 : place;
}

TEST(warps_fetch_the_same_from_anywhere) {
  Random random(7);
  for (const Isa* isa : other_isas()) {
    for (int round = 0; round < 2000; ++round) {
      const size_t width = random.between(1, 40);
      const size_t height = random.between(1, 9);
      const size_t stride = (width + 2 * WarpSource::kBorder) * WarpSource::kPixel;
      Block pixels(random_bytes(stride * (height + 2 * WarpSource::kBorder), random),
                   random.below(64));
      WarpSource source{pixels.begin() + WarpSource::kBorder * (stride + WarpSource::kPixel),
                        stride,
                        static_cast<double>(width),
                        static_cast<double>(height),
                        {random.byte(), random.byte(), random.byte()}};
      const size_t count = random.between(1, 64);
      std::vector<double> x(count);
      std::vector<double> y(count);
      const bool wild = random.one_in(2);
      const double row = 0.5 + std::floor(source.height / 2);
      for (size_t i = 0; i < count; ++i) {
        x[i] = wild ? random_place(source.width, random)
                    : source.width * static_cast<double>(i) / static_cast<double>(count);
        y[i] = wild ? random_place(source.height, random) : row;
      }
      for (const auto kernel : {&WarpKernels::bilinear, &WarpKernels::bicubic}) {
        Bytes expected(count * kRgb);
        Block made(expected, random.below(64));
        (kWarpScalar.*kernel)(source, x.data(), y.data(), count, expected.data());
        (isa->warp->*kernel)(source, x.data(), y.data(), count, made.begin());
        EXPECT(made.bytes() == expected && made.nothing_before_changed());
      }
    }
  }
}

TEST(pixels_are_widened_alike) {
  Random random(8);
  for (const Isa* isa : other_isas()) {
    for (size_t pixels = 1; pixels <= 80; ++pixels) {
      Block rgb(random_bytes(pixels * kRgb, random), random.below(64));
      Bytes expected(pixels * WarpSource::kPixel);
      Block made(expected, random.below(64));
      kWarpScalar.widen(rgb.begin(), pixels, expected.data());
      isa->warp->widen(rgb.begin(), pixels, made.begin());
      EXPECT(made.bytes() == expected && made.nothing_before_changed());
    }
  }
}

}  // namespace
}  // namespace fastloader

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
