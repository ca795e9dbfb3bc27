// What the kernels make of coefficients is what libjpeg-turbo makes of a file with them, to the
// byte. libjpeg-turbo writes these files from coefficients that are chosen here.

#include <algorithm>
#include <climits>
#include <cstring>
#include <string>
#include <vector>

#include "check.h"
#include "image/dispatch.h"
#include "image/jpeg/kernels/pixels.h"
#include "image/jpeg/zigzag.h"
#include "jpeg_samples.h"

namespace fastloader {
namespace {

using namespace testing;

using Bytes = std::vector<uint8_t>;

constexpr size_t kRgb = 3;

struct alignas(64) Coefficients {
  int16_t values[kJpegBlock] = {};  ///< in the order of the file
};

struct alignas(64) Quantization {
  uint16_t factors[kJpegBlock] = {};
};

size_t ceil_div(size_t number, size_t divisor) { return (number + divisor - 1) / divisor; }

/// A grey picture, or one whose second and third component are smaller than its first.
struct Picture {
  size_t width;
  size_t height;
  size_t components;
  size_t across;  ///< by which its first component is wider
  size_t down;
  bool arithmetic = false;
  Quantization quantization[2];
  std::vector<Coefficients> blocks[kRgb];

  Picture(size_t wide, size_t high, size_t all, size_t horizontal, size_t vertical)
      : width(wide), height(high), components(all), across(horizontal), down(vertical) {
    for (size_t c = 0; c < components; ++c) blocks[c].resize(blocks_across(c) * blocks_down(c));
  }

  size_t columns(size_t c) const { return c == 0 ? width : ceil_div(width, across); }
  size_t rows(size_t c) const { return c == 0 ? height : ceil_div(height, down); }
  /// With those that only fill the last one of the larger blocks that a file consists of.
  size_t blocks_across(size_t c) const {
    return ceil_div(width, across * kJpegEdge) * (c == 0 ? across : 1);
  }
  size_t blocks_down(size_t c) const {
    return ceil_div(height, down * kJpegEdge) * (c == 0 ? down : 1);
  }
  const uint16_t* factors(size_t c) const { return quantization[c == 0 ? 0 : 1].factors; }
};

// ---- As libjpeg-turbo does it -------------------------------------------------------------------

using samples_detail::Encoder;

void set_up(Encoder& encoder, const Picture& picture) {
  jpeg_compress_struct& info = encoder.info;
  jpeg_create_compress(&info);
  info.dest = &encoder.destination;
  info.image_width = static_cast<JDIMENSION>(picture.width);
  info.image_height = static_cast<JDIMENSION>(picture.height);
  info.input_components = static_cast<int>(picture.components);
  info.in_color_space = picture.components == 1 ? JCS_GRAYSCALE : JCS_YCbCr;
  jpeg_set_defaults(&info);
  info.arith_code = picture.arithmetic ? TRUE : FALSE;
  info.comp_info[0].h_samp_factor = static_cast<int>(picture.across);
  info.comp_info[0].v_samp_factor = static_cast<int>(picture.down);
  for (size_t c = 1; c < picture.components; ++c) {
    info.comp_info[c].h_samp_factor = info.comp_info[c].v_samp_factor = 1;
  }
  for (size_t t = 0; t < 2; ++t) {
    for (size_t i = 0; i < kJpegBlock; ++i) {
      info.quant_tbl_ptrs[t]->quantval[i] = picture.quantization[t].factors[i];
    }
  }
}

void write(Encoder& encoder, const Picture& picture) {
  set_up(encoder, picture);
  const auto common = reinterpret_cast<j_common_ptr>(&encoder.info);
  const jpeg_memory_mgr& memory = *encoder.info.mem;
  jvirt_barray_ptr arrays[kRgb];
  for (size_t c = 0; c < picture.components; ++c) {
    arrays[c] = memory.request_virt_barray(
        common, JPOOL_IMAGE, TRUE, static_cast<JDIMENSION>(picture.blocks_across(c)),
        static_cast<JDIMENSION>(picture.blocks_down(c)), static_cast<JDIMENSION>(picture.down));
  }
  jpeg_write_coefficients(&encoder.info, arrays);  // only begins to, and makes the arrays
  for (size_t c = 0; c < picture.components; ++c) {
    for (size_t y = 0; y < picture.blocks_down(c); ++y) {
      JBLOCKROW row =
          *memory.access_virt_barray(common, arrays[c], static_cast<JDIMENSION>(y), 1, TRUE);
      for (size_t x = 0; x < picture.blocks_across(c); ++x) {
        const Coefficients& block = picture.blocks[c][y * picture.blocks_across(c) + x];
        for (size_t k = 0; k < kJpegBlock; ++k) row[x][kZigzag[k]] = block.values[k];
      }
    }
  }
  jpeg_finish_compress(&encoder.info);
}

bool run(Encoder& encoder, const Picture& picture) {
  if (setjmp(encoder.escape) != 0) return false;
  write(encoder, picture);
  return true;
}

/// Empty when libjpeg cannot write such a file.
Bytes written(const Picture& picture) {
  Bytes out(65536 + picture.width * picture.height * 64);
  auto encoder = std::vector<Encoder>(1);
  Encoder& e = encoder[0];
  std::memset(&e, 0, sizeof e);
  e.info.err = jpeg_std_error(&e.errors);
  e.errors.error_exit = samples_detail::on_error;
  e.errors.output_message = [](j_common_ptr) {};  // warns of factors beyond 255
  e.info.client_data = &e;
  e.destination.init_destination = [](j_compress_ptr) {};
  e.destination.term_destination = [](j_compress_ptr) {};
  e.destination.empty_output_buffer = [](j_compress_ptr info) -> boolean {
    samples_detail::on_error(reinterpret_cast<j_common_ptr>(info));
  };
  e.destination.next_output_byte = out.data();
  e.destination.free_in_buffer = out.size();
  const bool done = run(e, picture);
  out.resize(done ? out.size() - e.destination.free_in_buffer : 0);
  jpeg_destroy_compress(&e.info);
  return out;
}

struct Decoder {
  jpeg_decompress_struct info;
  jpeg_error_mgr errors;
  std::jmp_buf escape;
};

bool decode(Decoder& decoder, const Bytes& file, Bytes& rgb) {
  if (setjmp(decoder.escape) != 0) return false;
  jpeg_decompress_struct& info = decoder.info;
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, file.data(), static_cast<unsigned long>(file.size()));
  jpeg_read_header(&info, TRUE);
  info.out_color_space = JCS_RGB;
  jpeg_start_decompress(&info);
  const size_t stride = info.output_width * kRgb;
  rgb.resize(stride * info.output_height);
  while (info.output_scanline < info.output_height) {
    JSAMPROW row = rgb.data() + info.output_scanline * stride;
    jpeg_read_scanlines(&info, &row, 1);
  }
  jpeg_finish_decompress(&info);
  return true;
}

/// Fails if libjpeg finds anything wrong with the file.
Bytes decoded(const Bytes& file) {
  auto decoder = std::vector<Decoder>(1);
  Decoder& d = decoder[0];
  std::memset(&d, 0, sizeof d);
  d.info.err = jpeg_std_error(&d.errors);
  d.errors.error_exit = [](j_common_ptr info) {
    std::longjmp(static_cast<Decoder*>(info->client_data)->escape, 1);
  };
  d.info.client_data = &d;
  Bytes rgb;
  const bool done = decode(d, file, rgb);
  const auto warnings = d.errors.num_warnings;
  jpeg_destroy_decompress(&d.info);
  EXPECT(done && warnings == 0);
  return rgb;
}

// ---- As the kernels do it -----------------------------------------------------------------------

/// A component's samples, with room around each row for what kernels read.
struct Plane {
  size_t stride;
  Bytes bytes;

  Plane(size_t width, size_t height)
      : stride(width + 2 * kJpegSlack), bytes(stride * height + 2 * kJpegSlack) {}

  uint8_t* row(size_t y) { return bytes.data() + kJpegSlack + y * stride; }
};

Plane samples_of(const Picture& picture, size_t c, const JpegPixelKernels& kernels) {
  Plane plane(picture.blocks_across(c) * kJpegEdge, picture.blocks_down(c) * kJpegEdge);
  std::vector<Coefficients> blocks = picture.blocks[c];
  std::vector<JpegBlock> list;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const size_t y = i / picture.blocks_across(c);
    const size_t x = i % picture.blocks_across(c);
    int16_t* const values = blocks[i].values;
    uint8_t* const samples = plane.row(y * kJpegEdge) + x * kJpegEdge;
    uint32_t last = kJpegBlock - 1;
    while (last != 0 && values[last] == 0) --last;
    if (last != 0) {
      list.push_back({values, samples, last});
      continue;
    }
    const uint8_t flat = jpeg_flat_sample(values[0], picture.factors(c)[0]);
    for (size_t row = 0; row < kJpegEdge; ++row) {
      std::memset(samples + row * plane.stride, flat, kJpegEdge);
    }
  }
  kernels.inverse_dct(list.data(), list.size(), picture.factors(c), plane.stride);
  for (size_t y = 0; y < picture.rows(c); ++y) {
    uint8_t* const row = plane.row(y);
    row[-1] = row[0];
    row[picture.columns(c)] = row[picture.columns(c) - 1];
  }
  return plane;
}

/// Row y of the picture of a component that may be smaller than it. What has to be made for it is
/// put into `room`.
const uint8_t* full_row(const Picture& picture, size_t c, Plane& plane, size_t y,
                        const JpegPixelKernels& kernels, Bytes& room) {
  const size_t across = c == 0 ? 1 : picture.across;
  const size_t down = c == 0 ? 1 : picture.down;
  const size_t columns = picture.columns(c);
  const size_t middle = y / down;
  if (across == 1 && down == 1) return plane.row(y);
  if (down == 1) {
    kernels.widen(plane.row(middle), columns, room.data());
    return room.data();
  }
  const bool lower = y % 2 != 0;
  const size_t above = middle == 0 ? 0 : middle - 1;
  const size_t below = std::min(middle + 1, picture.rows(c) - 1);
  const uint8_t* far = plane.row(lower ? below : above);
  if (across == 1) {
    kernels.between(plane.row(middle), far, columns, lower ? 2 : 1, room.data());
  } else {
    kernels.widen_between(plane.row(middle), far, columns, room.data());
  }
  return room.data();
}

Bytes made(const Picture& picture, const JpegPixelKernels& kernels) {
  std::vector<Plane> planes;
  for (size_t c = 0; c < picture.components; ++c) {
    planes.push_back(samples_of(picture, c, kernels));
  }
  const size_t stride = picture.width * kRgb;
  Bytes rgb(stride * picture.height + kJpegSlack * kRgb);
  Bytes room[kRgb];
  for (Bytes& each : room) each.resize(picture.width + 1 + 2 * kJpegSlack);
  for (size_t y = 0; y < picture.height; ++y) {
    const uint8_t* rows[kRgb] = {};
    for (size_t c = 0; c < picture.components; ++c) {
      rows[c] = full_row(picture, c, planes[c], y, kernels, room[c]);
    }
    uint8_t* const out = rgb.data() + y * stride;
    if (picture.components == 1) {
      kernels.grey_to_rgb(rows[0], picture.width, out);
    } else {
      kernels.ycc_to_rgb(rows[0], rows[1], rows[2], picture.width, out);
    }
  }
  rgb.resize(stride * picture.height);
  return rgb;
}

// ---- Pictures -----------------------------------------------------------------------------------

struct Sampling {
  const char* name;
  size_t components;
  size_t across;
  size_t down;
};

constexpr Sampling kSamplings[] = {{"grey", 1, 1, 1},
                                   {"4:4:4", 3, 1, 1},
                                   {"4:2:2", 3, 2, 1},
                                   {"4:2:0", 3, 2, 2},
                                   {"4:4:0", 3, 1, 2}};

/// libjpeg does not interpolate between fewer than 3 columns.
Picture any_picture(const Sampling& sampling, Random& random) {
  return Picture(random.between(5, 90), random.between(1, 60), sampling.components, sampling.across,
                 sampling.down);
}

int between(Random& random, int low, int high) {
  return low + static_cast<int>(random.below(static_cast<uint32_t>(high - low + 1)));
}

/// As far as Huffman codes reach: 1023, which the difference of two first ones must not exceed
/// twice. Times its factor, the first one is at most `limit`, and the others are less and less.
void fill_for_huffman(Picture& picture, int limit, Random& random) {
  const uint32_t largest_factor = random.chance(50) ? 30 : random.chance(50) ? 255 : 65535;
  for (Quantization& table : picture.quantization) {
    for (uint16_t& factor : table.factors) {
      factor = static_cast<uint16_t>(random.between(1, largest_factor));
    }
  }
  const uint32_t busy = random.between(0, 100);
  for (size_t c = 0; c < picture.components; ++c) {
    for (Coefficients& block : picture.blocks[c]) {
      const uint32_t last = random.chance(busy) ? random.below(64) : random.below(10);
      for (uint32_t k = 0; k <= last; ++k) {
        const int here = limit / static_cast<int>(k + 1);
        const int most = std::min(1023, here / picture.factors(c)[kZigzag[k]]);
        if (random.chance(50)) block.values[k] = static_cast<int16_t>(between(random, -most, most));
      }
    }
  }
}

/// As far as arithmetic coding reaches: all of 16 bits, but for differences of first ones.
void fill_for_arithmetic(Picture& picture, Random& random) {
  picture.arithmetic = true;
  for (Quantization& table : picture.quantization) {
    const bool calm = random.chance(50);
    const bool powers = random.chance(30);
    for (size_t i = 0; i < kJpegBlock; ++i) {
      table.factors[i] =
          static_cast<uint16_t>(powers ? 1u << random.below(16) : random.between(1, 65535));
      if (calm && i < kJpegEdge) table.factors[i] = 1;
    }
  }
  const bool only_first_row = random.chance(20);
  const bool calm_first_row = random.chance(50);
  for (size_t c = 0; c < picture.components; ++c) {
    for (Coefficients& block : picture.blocks[c]) {
      const uint32_t last = random.chance(50) ? random.below(64) : random.below(10);
      for (uint32_t k = 0; k <= last; ++k) {
        const bool in_first_row = kZigzag[k] < kJpegEdge;
        if (random.chance(30) || (only_first_row && !in_first_row)) continue;
        const int shift = in_first_row && calm_first_row ? 3 : k == 0 ? 1 : 0;
        block.values[k] = static_cast<int16_t>(between(random, INT16_MIN, INT16_MAX) >> shift);
      }
    }
  }
}

void compare(const Sampling& sampling, const Picture& picture) {
  const Bytes file = written(picture);
  if (file.empty() && picture.arithmetic) throw Skip{"this libjpeg writes no arithmetic coding"};
  EXPECT(!file.empty());
  const Bytes expected = decoded(file);
  for (const std::string& name : available_isa_names()) {
    if (made(picture, *isa_by_name(name).jpeg_pixels) != expected) {
      throw Failure{name + " differs for " + sampling.name + " of " +
                    std::to_string(picture.width) + "x" + std::to_string(picture.height)};
    }
  }
}

/// Calls fill(picture, random) for pictures of every sampling.
template <class Fill>
void compare_pictures(uint64_t seed, const Fill& fill) {
  Random random(seed);
  for (const Sampling& sampling : kSamplings) {
    for (int round = 0; round < 200; ++round) {
      Picture picture = any_picture(sampling, random);
      fill(picture, random);
      compare(sampling, picture);
    }
  }
}

TEST(pixels_are_those_of_libjpeg_turbo) {
  compare_pictures(
      1, [](Picture& picture, Random& random) { fill_for_huffman(picture, 1024, random); });
}

#if defined(__x86_64__)

// What no encoder writes, the kernels do as libjpeg-turbo does on x86.

TEST(large_coefficients_give_the_pixels_of_libjpeg_turbo) {
  compare_pictures(
      2, [](Picture& picture, Random& random) { fill_for_huffman(picture, INT_MAX, random); });
}

TEST(absurd_coefficients_give_the_pixels_of_libjpeg_turbo) {
  compare_pictures(3, fill_for_arithmetic);
}

#endif

}  // namespace
}  // namespace fastloader

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
