// The pixels of a JPEG do not depend on the instruction set. Needs no libjpeg, which
// jpeg_pixels_library_test compares the same kernels with.

#include "image/jpeg/kernels/pixels.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "check.h"
#include "image/dispatch.h"
#include "image/jpeg/zigzag.h"
#include "resize_reference.h"

namespace fastloader {
namespace {

using namespace testing;

using Bytes = std::vector<uint8_t>;

constexpr uint8_t kPoison = 0x5a;

/// All but the scalar one, which the others are compared with.
std::vector<const Isa*> other_isas() {
  std::vector<const Isa*> isas;
  for (const std::string& name : available_isa_names()) {
    if (name != "scalar") isas.push_back(&isa_by_name(name));
  }
  return isas;
}

// ---- Coefficients to samples --------------------------------------------------------------------

struct alignas(64) Coefficients {
  int16_t values[kJpegBlock] = {};
};

struct alignas(64) Quantization {
  uint16_t factors[kJpegBlock] = {};
};

int16_t any_number(Random& random) {
  return static_cast<int16_t>(random.byte() | random.byte() << 8);
}

/// Less and less of what an encoder finds from the first coefficient on.
void fill_as_encoders_do(Coefficients& block, size_t last, Random& random) {
  for (size_t k = 0; k <= last; ++k) {
    const int most = static_cast<int>(1 + 500 / (1 + k * k / 4));
    if (k != 0 && random.one_in(2)) continue;
    block.values[k] = static_cast<int16_t>(any_number(random) % most);
  }
}

/// The numbers next to where 16 bits end, and others of any size.
int16_t absurd_number(Random& random) {
  constexpr int16_t kEdges[] = {INT16_MIN, INT16_MIN + 1, INT16_MAX, 1,    -1,
                                256,       16384,         8191,      -8193};
  return random.one_in(3) ? kEdges[random.below(std::size(kEdges))] : any_number(random);
}

enum class Kind {
  kPlausible,
  kAbsurd,
  kCalmFirstRow,  ///< absurd but for the first row, whose size decides on the way that is taken
  kOnlyFirstRow,
  kFew,
  kKinds,
};

void fill(Coefficients& block, size_t last, Kind kind, Random& random) {
  if (kind == Kind::kPlausible) return fill_as_encoders_do(block, last, random);
  for (size_t k = 0; k <= last; ++k) {
    const bool first_row = kZigzag[k] < kJpegEdge;
    if (kind == Kind::kFew && !random.one_in(8)) continue;
    if (kind == Kind::kOnlyFirstRow && !first_row) continue;
    block.values[k] = kind == Kind::kCalmFirstRow && first_row
                          ? static_cast<int16_t>(any_number(random) >> 3)
                          : absurd_number(random);
  }
}

/// With factors of 1 in the first row, it stays as calm as it is.
Quantization any_quantization(Random& random) {
  Quantization table;
  const size_t kind = random.below(4);
  const bool calm = random.one_in(2);
  for (size_t i = 0; i < kJpegBlock; ++i) {
    uint16_t& factor = table.factors[i];
    if (kind == 0) factor = 1;
    if (kind == 1) factor = static_cast<uint16_t>(1 + random.below(255));
    if (kind == 2) factor = static_cast<uint16_t>(absurd_number(random));
    if (kind == 3) factor = static_cast<uint16_t>(1u << random.below(16));
    if (calm && i < kJpegEdge) factor = 1;
  }
  return table;
}

/// Blocks side by side in rows of blocks, some places left free, in any order.
struct Layout {
  size_t stride;
  std::vector<size_t> offsets;
  size_t bytes;

  Layout(size_t blocks, Random& random) {
    const size_t across = random.between(1, 9);
    stride = across * kJpegEdge + random.below(70) * random.below(2);
    size_t place = 0;
    for (size_t i = 0; i < blocks; ++i, ++place) {
      if (random.one_in(5)) ++place;
      offsets.push_back(place / across * kJpegEdge * stride + place % across * kJpegEdge);
    }
    bytes = (place / across + 1) * kJpegEdge * stride;
    if (random.one_in(2)) {
      for (size_t i = blocks; i > 1; --i) std::swap(offsets[i - 1], offsets[random.below(i)]);
    }
  }
};

struct Blocks {
  std::vector<Coefficients> coefficients;
  std::vector<uint32_t> last;
  Quantization quantization;
  Layout layout;

  Blocks(size_t count, Random& random) : coefficients(count), layout(count, random) {
    quantization = any_quantization(random);
    for (Coefficients& block : coefficients) {
      last.push_back(
          static_cast<uint32_t>(random.one_in(2) ? random.between(1, 9) : random.between(1, 63)));
      fill(block, last.back(), static_cast<Kind>(random.below(static_cast<size_t>(Kind::kKinds))),
           random);
    }
  }
};

/// Room for the samples with nothing behind it; what is between the blocks must stay as it is.
Bytes samples_of(const JpegPixelKernels& kernels, const Blocks& blocks) {
  std::vector<Coefficients> coefficients = blocks.coefficients;
  const Fenced samples(blocks.layout.bytes, true);
  std::memset(samples.begin(), kPoison, blocks.layout.bytes);
  std::vector<JpegBlock> list;
  for (size_t i = 0; i < coefficients.size(); ++i) {
    list.push_back(
        {coefficients[i].values, samples.begin() + blocks.layout.offsets[i], blocks.last[i]});
  }
  kernels.inverse_dct(list.data(), list.size(), blocks.quantization.factors, blocks.layout.stride);
  for (const Coefficients& block : coefficients) {
    for (const int16_t value : block.values) EXPECT_EQ(value, 0);
  }
  return Bytes(samples.begin(), samples.begin() + blocks.layout.bytes);
}

void compare_samples(const Blocks& blocks) {
  const Bytes expected = samples_of(kJpegPixelsScalar, blocks);
  for (const Isa* isa : other_isas()) {
    if (samples_of(*isa->jpeg_pixels, blocks) != expected) {
      throw Failure{std::string(isa->name) + " differs for " +
                    std::to_string(blocks.coefficients.size()) + " blocks"};
    }
  }
}

TEST(blocks_give_the_same_samples) {
  Random random(1);
  for (int round = 0; round < 40; ++round) {
    for (size_t count = 1; count <= 67; ++count) compare_samples(Blocks(count, random));
  }
  for (int round = 0; round < 20; ++round) compare_samples(Blocks(random.between(68, 300), random));
}

/// One kind of block in all of the list, with coefficients up to the last one.
TEST(blocks_of_every_length_give_the_same_samples) {
  Random random(2);
  for (uint32_t last = 1; last < kJpegBlock; ++last) {
    for (size_t kind = 0; kind < static_cast<size_t>(Kind::kKinds); ++kind) {
      for (int round = 0; round < 10; ++round) {
        Blocks blocks(random.between(1, 9), random);
        for (size_t i = 0; i < blocks.coefficients.size(); ++i) {
          blocks.last[i] = last;
          blocks.coefficients[i] = {};
          fill(blocks.coefficients[i], last, static_cast<Kind>(kind), random);
        }
        compare_samples(blocks);
      }
    }
  }
}

TEST(a_block_with_one_coefficient_is_flat) {
  Random random(3);
  for (int first = INT16_MIN; first <= INT16_MAX; ++first) {
    const Quantization quantization = any_quantization(random);
    Coefficients block;
    block.values[0] = static_cast<int16_t>(first);
    uint8_t samples[kJpegBlock];
    const JpegBlock list = {block.values, samples, 1};
    kJpegPixelsScalar.inverse_dct(&list, 1, quantization.factors, kJpegEdge);
    const uint8_t expected = jpeg_flat_sample(static_cast<int16_t>(first), quantization.factors[0]);
    for (const uint8_t sample : samples) EXPECT_EQ(int{sample}, int{expected});
  }
}

// ---- Rows ---------------------------------------------------------------------------------------

/// A row of random samples with a neighbour before it, and just as many bytes behind it as kernels
/// may read.
class Row {
 public:
  Row(size_t count, bool at_end, Random& random)
      : memory_(1 + count + kJpegSlack, at_end || random.one_in(2)) {
    const bool harsh = random.one_in(3);
    for (size_t i = 0; i < 1 + count + kJpegSlack; ++i) {
      const uint8_t byte = random.byte();
      memory_.begin()[i] = !harsh ? byte : byte < 128 ? 0 : 255;
    }
  }
  const uint8_t* begin() const { return memory_.begin() + 1; }

 private:
  Fenced memory_;
};

/// make(kernels, out) of every instruction set writes `count` samples of `bytes` each like the
/// scalar one, and no more than kJpegSlack samples behind them.
template <class Make>
void compare_rows(size_t count, size_t bytes, const Make& make) {
  const size_t room = (count + kJpegSlack) * bytes;
  const Fenced expected(room, true);
  make(kJpegPixelsScalar, expected.begin());
  for (const Isa* isa : other_isas()) {
    const Fenced made(room, true);
    make(*isa->jpeg_pixels, made.begin());
    if (std::memcmp(made.begin(), expected.begin(), count * bytes) != 0) {
      throw Failure{std::string(isa->name) + " differs for " + std::to_string(count) + " samples"};
    }
  }
}

template <class Check>
void for_many_widths(const Check& check) {
  for (size_t count = 1; count <= 400; count += count < 200 ? 1 : 37) {
    for (int round = 0; round < 8; ++round) check(count, round % 2 == 0);
  }
}

TEST(rows_are_widened_alike) {
  Random random(4);
  for_many_widths([&](size_t count, bool at_end) {
    const Row in(count, at_end, random);
    compare_rows(2 * count, 1, [&](const JpegPixelKernels& kernels, uint8_t* out) {
      kernels.widen(in.begin(), count, out);
    });
  });
}

TEST(rows_are_widened_between_others_alike) {
  Random random(5);
  for_many_widths([&](size_t count, bool at_end) {
    const Row near(count, at_end, random);
    const Row far(count, at_end, random);
    compare_rows(2 * count, 1, [&](const JpegPixelKernels& kernels, uint8_t* out) {
      kernels.widen_between(near.begin(), far.begin(), count, out);
    });
  });
}

TEST(rows_between_others_are_alike) {
  Random random(6);
  for_many_widths([&](size_t count, bool at_end) {
    const Row near(count, at_end, random);
    const Row far(count, at_end, random);
    for (const unsigned bias : {1u, 2u}) {
      compare_rows(count, 1, [&](const JpegPixelKernels& kernels, uint8_t* out) {
        kernels.between(near.begin(), far.begin(), count, bias, out);
      });
    }
  });
}

// ---- Colour -------------------------------------------------------------------------------------

TEST(rows_have_the_same_colours) {
  Random random(7);
  for_many_widths([&](size_t count, bool at_end) {
    const Row y(count, at_end, random);
    const Row cb(count, at_end, random);
    const Row cr(count, at_end, random);
    compare_rows(count, 3, [&](const JpegPixelKernels& kernels, uint8_t* out) {
      kernels.ycc_to_rgb(y.begin(), cb.begin(), cr.begin(), count, out);
    });
    compare_rows(count, 3, [&](const JpegPixelKernels& kernels, uint8_t* out) {
      kernels.grey_to_rgb(y.begin(), count, out);
    });
  });
}

/// jdcolor.c's tables.
struct ColourTables {
  int red[256];
  int blue[256];
  int32_t green_of_cr[256];
  int32_t green_of_cb[256];

  ColourTables() {
    const auto fix = [](double factor) { return static_cast<int32_t>(factor * 65536 + 0.5); };
    for (int i = 0; i < 256; ++i) {
      const int x = i - 128;
      red[i] = (fix(1.40200) * x + 32768) >> 16;
      blue[i] = (fix(1.77200) * x + 32768) >> 16;
      green_of_cr[i] = -fix(0.71414) * x;
      green_of_cb[i] = -fix(0.34414) * x + 32768;
    }
  }
};

uint8_t limited(int value) { return static_cast<uint8_t>(std::clamp(value, 0, 255)); }

TEST(every_colour_is_that_of_the_tables) {
  const ColourTables tables;
  constexpr size_t kPixels = 1 << 16;
  Bytes y(kPixels + kJpegSlack);
  Bytes cb(kPixels + kJpegSlack);
  Bytes cr(kPixels + kJpegSlack);
  for (size_t i = 0; i < kPixels; ++i) {
    cb[i] = static_cast<uint8_t>(i >> 8);
    cr[i] = static_cast<uint8_t>(i);
  }
  Bytes expected(kPixels * 3);
  Bytes made((kPixels + kJpegSlack) * 3);
  for (int grey = 0; grey < 256; ++grey) {
    std::fill(y.begin(), y.end(), static_cast<uint8_t>(grey));
    for (size_t i = 0; i < kPixels; ++i) {
      expected[3 * i] = limited(grey + tables.red[cr[i]]);
      expected[3 * i + 1] =
          limited(grey + ((tables.green_of_cb[cb[i]] + tables.green_of_cr[cr[i]]) >> 16));
      expected[3 * i + 2] = limited(grey + tables.blue[cb[i]]);
    }
    for (const std::string& name : available_isa_names()) {
      isa_by_name(name).jpeg_pixels->ycc_to_rgb(y.data(), cb.data(), cr.data(), kPixels,
                                                made.data());
      if (std::memcmp(made.data(), expected.data(), expected.size()) != 0) {
        throw Failure{name + " differs for y = " + std::to_string(grey)};
      }
    }
  }
}

}  // namespace
}  // namespace fastloader

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
