#include "image/jpeg/libjpeg/probe.h"

#include <atomic>
#include <csetjmp>
#include <cstdio>  // jpeglib.h uses FILE and size_t without including them
#include <cstring>
#include <initializer_list>
#include <memory>
#include <vector>

#include "base/error.h"
#include "image/jpeg/libjpeg/decoder.h"

#include <jpeglib.h>

namespace fastloader {
namespace {

using Bytes = std::vector<uint8_t>;

/// The scans of a progressive file, the same for each component.
enum class Scans : uint8_t {
  kSequential,
  kComplete,       ///< libjpeg's own script of progressive scans
  kMeans,          ///< the means of the blocks only
  kWithoutLast,    ///< everything but the last bit
  kFewAndRoughly,  ///< means without their last bit, and five coefficients without two
};

struct Picture {
  unsigned width;
  unsigned height;
  JpegLayout layout;
  Scans scans;
};

/// libjpeg's compressor. Plain data, as libjpeg's jumps pass no destructor.
struct Writer {
  jpeg_compress_struct info;
  jpeg_error_mgr errors;
  jpeg_destination_mgr destination;
  std::jmp_buf escape;
  jpeg_scan_info scans[2 * kMaxJpegComponents];
};

[[noreturn]] void give_up(j_common_ptr info) {
  std::longjmp(static_cast<Writer*>(info->client_data)->escape, 1);
}

void choose_scans(Writer& writer, const Picture& picture) {
  if (picture.scans == Scans::kSequential) return;
  if (picture.scans == Scans::kComplete) {
    jpeg_simple_progression(&writer.info);
    return;
  }
  int count = 0;
  const auto add = [&](int first, int last, int missing_bits) {
    for (int c = 0; c < picture.layout.components; ++c) {
      writer.scans[count++] = {1, {c, 0, 0, 0}, first, last, 0, missing_bits};
    }
  };
  add(0, 0, picture.scans == Scans::kMeans ? 0 : 1);
  if (picture.scans == Scans::kFewAndRoughly) add(1, 5, 2);
  if (picture.scans == Scans::kWithoutLast) add(1, 63, 1);
  writer.info.scan_info = writer.scans;
  writer.info.num_scans = count;
}

void write(Writer& writer, const Picture& picture, Bytes& row) {
  jpeg_compress_struct& info = writer.info;
  jpeg_create_compress(&info);
  info.dest = &writer.destination;
  info.image_width = picture.width;
  info.image_height = picture.height;
  info.input_components = picture.layout.components;
  // Samples as they are stored: nothing here depends on colours.
  info.in_color_space = picture.layout.components == 1   ? JCS_GRAYSCALE
                        : picture.layout.components == 3 ? JCS_YCbCr
                                                         : JCS_CMYK;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, 90, TRUE);
  for (int c = 0; c < picture.layout.components; ++c) {
    info.comp_info[c].h_samp_factor = picture.layout.sampling[c].horizontal;
    info.comp_info[c].v_samp_factor = picture.layout.sampling[c].vertical;
  }
  choose_scans(writer, picture);
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    const unsigned y = info.next_scanline;
    for (size_t i = 0; i < row.size(); ++i) {  // slopes, and what no slope explains
      const auto x = static_cast<unsigned>(i);
      row[i] = static_cast<uint8_t>((x * 5 + y * 3 + ((x * x + y * y * 7) >> 4)) & 0xff);
    }
    JSAMPROW samples = row.data();
    jpeg_write_scanlines(&info, &samples, 1);
  }
  jpeg_finish_compress(&info);
}

bool run(Writer& writer, const Picture& picture, Bytes& row) {
  if (setjmp(writer.escape) != 0) return false;
  write(writer, picture, row);
  return true;
}

Bytes compressed(const Picture& picture) {
  Bytes row(size_t{picture.width} * static_cast<size_t>(picture.layout.components));
  Bytes out(row.size() * picture.height * 4 + 4096);
  const auto writer = std::make_unique<Writer>();
  std::memset(writer.get(), 0, sizeof *writer);
  writer->info.err = jpeg_std_error(&writer->errors);
  writer->errors.error_exit = give_up;
  writer->info.client_data = writer.get();
  writer->destination.init_destination = [](j_compress_ptr) {};
  writer->destination.term_destination = [](j_compress_ptr) {};
  writer->destination.empty_output_buffer = [](j_compress_ptr info) -> boolean {
    give_up(reinterpret_cast<j_common_ptr>(info));
  };
  writer->destination.next_output_byte = out.data();
  writer->destination.free_in_buffer = out.size();
  const bool written = run(*writer, picture, row);
  out.resize(written ? out.size() - writer->destination.free_in_buffer : 0);
  jpeg_destroy_compress(&writer->info);
  return out;
}

Bytes decoded(const Bytes& jpeg, const PictureRegion& region) {
  JpegOptions options;
  options.probing = true;
  options.check_below = true;
  LibjpegDecoder decoder;
  decoder.open(jpeg.data(), jpeg.size(), options);
  decoder.begin(region);
  Bytes pixels;
  while (decoder.rows_left() > 0) {
    const uint8_t* row = decoder.read_row();
    pixels.insert(pixels.end(), row, row + size_t{region.width} * 3);
  }
  return pixels;
}

/// Whether a part, decoded by leaving out the rest, is that part of the whole.
bool same(const Bytes& jpeg, const Bytes& whole, unsigned width, const PictureRegion& region) {
  const Bytes part = decoded(jpeg, region);
  for (size_t y = 0; y < region.height; ++y) {
    const uint8_t* expected = whole.data() + ((region.top + y) * width + region.left) * 3;
    const size_t row = size_t{region.width} * 3;
    if (std::memcmp(part.data() + y * row, expected, row) != 0) return false;
  }
  return true;
}

bool try_skipping(const JpegLayout& layout) {
  // Of several rows of the largest blocks, and an odd number of columns and rows.
  constexpr unsigned kWidth = 83;
  constexpr unsigned kHeight = 71;
  for (const Scans scans : {Scans::kSequential, Scans::kComplete}) {
    const Bytes jpeg = compressed({kWidth, kHeight, layout, scans});
    const Bytes whole = decoded(jpeg, {0, 0, kWidth, kHeight});
    unsigned left = 0;
    // On, before and after every edge that libjpeg works along.
    for (const unsigned top : {1u, 2u, 7u, 8u, 15u, 16u, 17u, 33u, 47u, 70u}) {
      const unsigned height = top % 3 == 0 ? 1 : kHeight - top < 18 ? kHeight - top : 18;
      if (!same(jpeg, whole, kWidth, {left, top, 19, height})) return false;
      left = (left + 13) % (kWidth - 18);
    }
  }
  return true;
}

constexpr JpegLayout kGrey = {"", 1, {{1, 1}}};
constexpr JpegLayout k420 = {"", 3, {{2, 2}, {1, 1}, {1, 1}}};
constexpr JpegLayout k440 = {"", 3, {{1, 2}, {1, 1}, {1, 1}}};

/// Of every kind of missing scan, and of the shapes whose edges were once wrong: two blocks wide,
/// and colour of half the height.
constexpr Picture kUnfinished[] = {
    {16, 40, kGrey, Scans::kMeans},         {64, 64, kGrey, Scans::kWithoutLast},
    {83, 61, kGrey, Scans::kFewAndRoughly}, {32, 80, k420, Scans::kMeans},
    {83, 61, k420, Scans::kFewAndRoughly},  {48, 70, k420, Scans::kWithoutLast},
    {49, 70, k440, Scans::kFewAndRoughly},
};
/// Of the pixels that libjpeg-turbo 3.1 and 3.2 make of them, which are in Pillow 12 and 13.
constexpr uint64_t kPillows = 0x3e71a2111d317884u;

bool try_smoothing() {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const Picture& picture : kUnfinished) {
    const Bytes jpeg = compressed(picture);
    for (const uint8_t byte : decoded(jpeg, {0, 0, picture.width, picture.height})) {
      hash = (hash ^ byte) * 0x100000001b3u;
    }
  }
  return hash == kPillows;
}

enum class Known : uint8_t { kNothing, kYes, kNo };

/// No lock, and no static that waits to be made: a process forked meanwhile would wait for ever.
/// Threads that come at the same time try for themselves, and find the same.
template <class Probe>
bool remember(std::atomic<Known>& memory, Probe probe) {
  // Relaxed: this thread reads nothing else that the storing thread wrote.
  Known known = memory.load(std::memory_order_relaxed);
  if (known == Known::kNothing) {
    try {
      known = probe() ? Known::kYes : Known::kNo;
    } catch (const DecodeError&) {  // what this library cannot even write or read
      known = Known::kNo;
    }
    memory.store(known, std::memory_order_relaxed);
  }
  return known == Known::kYes;
}

}  // namespace

bool jpeg_skips_exactly(const JpegLayout& layout) {
  static std::atomic<Known> memory[kJpegLayouts];
  return remember(memory[&layout - jpeg_layouts()], [&] { return try_skipping(layout); });
}

bool jpeg_smooths_as_pillow() {
  static std::atomic<Known> memory;
  return remember(memory, try_smoothing);
}

}  // namespace fastloader
