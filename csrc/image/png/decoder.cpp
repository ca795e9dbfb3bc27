#include "image/png/decoder.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "image/png/expand.h"
#include "image/png/file.h"
#include "image/png/inflater.h"
#include "image/png/unfilter.h"

namespace fastloader {
namespace {

constexpr size_t kRgb = 3;

/// Bytes that are inflated at once: few enough to stay in a core's cache until they are used.
constexpr size_t kBlock = size_t{64} << 10;

/// One of the pictures that an interlaced one consists of: every dx-th column from x on, ...
struct Pass {
  uint32_t x, y, dx, dy;
};

constexpr std::array<Pass, 7> kPasses{{{0, 0, 8, 8},
                                       {4, 0, 8, 8},
                                       {0, 4, 4, 8},
                                       {2, 0, 4, 4},
                                       {0, 2, 2, 4},
                                       {1, 0, 2, 2},
                                       {0, 1, 1, 2}}};

uint32_t every(uint32_t length, uint32_t from, uint32_t by) {
  return length > from ? (length - from + by - 1) / by : 0;
}

}  // namespace

/// Everything of a decoder: zlib's types stay out of the header.
struct PngDecoder::State {
  PngFile file;
  PictureOptions options;
  PictureRegion region;
  PngInflater inflater;
  PngExpander expander;

  /// Rows of the file, one behind the other: the byte of its filter, then its pixels. Before them
  /// the row above the first, and a margin.
  std::vector<uint8_t> rows;
  /// RGB: a row, or the region of an interlaced picture; and a row of one of its passes.
  std::vector<uint8_t> rgb;
  std::vector<uint8_t> line;
  size_t stride = 0;
  size_t step = 1;
  uint32_t capacity = 0;   // rows that `rows` has room for, without the one above
  uint32_t made = 0;       // rows of the picture that have been inflated
  uint32_t in_block = 0;   // of these: those in `rows`
  uint32_t delivered = 0;  // rows of the region
  bool opened = false;
  bool reading = false;

  uint8_t* row(uint32_t in) { return rows.data() + kUnfilterMargin + (in + 1) * stride + 1; }

  void start_rows(uint32_t width, uint32_t height) {
    stride = file.header.row_bytes(width) + 1;
    capacity =
        static_cast<uint32_t>(std::min<size_t>(height, std::max<size_t>(1, kBlock / stride)));
    rows.resize(std::max(rows.size(), (capacity + size_t{1}) * stride + 2 * kUnfilterMargin));
    made = in_block = 0;
    std::memset(row(0) - stride, 0, stride - 1);
  }

  /// Inflates the next rows, `most` at most.
  void next_block(uint32_t most) {
    if (in_block > 0) std::memcpy(row(0) - stride, row(in_block - 1), stride - 1);
    in_block = std::min(most, capacity);
    inflater.fill(row(0) - 1, in_block * stride);
    for (uint32_t y = 0; y < in_block; ++y) {
      uint8_t* at = row(y);
      unfilter(at[-1], at, at - stride, stride - 1, step);
    }
    made += in_block;
  }

  void start(const PictureRegion& wanted) {
    region = wanted;
    delivered = 0;
    step = std::max(1u, file.header.pixel_bits() / 8);
    expander.begin(file, options.indices);
    inflater.start(file.data, file.data_end, options.stop);
    if (file.header.interlaced) return read_passes();
    rgb.resize(std::max(rgb.size(), region.width * kRgb));
    start_rows(file.header.width, file.header.height);
    while (made + capacity <= region.top) next_block(capacity);
  }

  const uint8_t* next() {
    const uint32_t y = region.top + delivered++;
    const bool last = delivered == region.height;
    if (last) reading = false;
    const size_t row_bytes = region.width * kRgb;
    if (file.header.interlaced) return rgb.data() + (y - region.top) * row_bytes;
    while (y >= made) next_block(end() - made);
    const uint8_t* pixels = row(y - (made - in_block));
    const bool plain = step == kRgb && file.header.color == PngColor::kRgb;
    // What is there is what is wanted.
    if (plain && !last) return pixels + region.left * kRgb;
    if (plain) {
      std::memcpy(rgb.data(), pixels + region.left * kRgb, row_bytes);
    } else {
      expander.expand(pixels, region.left, region.width, rgb.data());
    }
    if (last) finish();
    return rgb.data();
  }

  /// The first row that is not inflated.
  uint32_t end() const {
    return options.check_below ? file.header.height : region.top + region.height;
  }

  /// Looks at what lies below the region.
  void finish() {
    while (made < end()) next_block(end() - made);
    if (made < file.header.height) return check_png_data(file);
    inflater.finish();
  }

  void read_passes() {
    rgb.resize(std::max(rgb.size(), region.height * (region.width * kRgb)));
    for (const Pass& pass : kPasses) read_pass(pass);
    inflater.finish();
  }

  void read_pass(const Pass& pass) {
    const uint32_t width = every(file.header.width, pass.x, pass.dx);
    const uint32_t height = every(file.header.height, pass.y, pass.dy);
    if (width == 0 || height == 0) return;
    start_rows(width, height);
    // Its columns and rows that are in the region.
    const uint32_t first = every(region.left, pass.x, pass.dx);
    const uint32_t columns = every(region.left + region.width, pass.x, pass.dx) - first;
    line.resize(std::max(line.size(), columns * kRgb));
    while (made < height) {
      const uint32_t before = made;
      next_block(height - made);
      for (uint32_t y = before; y < made; ++y) {
        const uint32_t at = pass.y + y * pass.dy;
        if (at < region.top || at - region.top >= region.height) continue;
        expander.expand(row(y - before), first, columns, line.data());
        uint8_t* out = rgb.data() + (at - region.top) * (region.width * kRgb) +
                       (pass.x + first * pass.dx - region.left) * kRgb;
        for (uint32_t x = 0; x < columns; ++x, out += pass.dx * kRgb) {
          std::memcpy(out, line.data() + x * kRgb, kRgb);
        }
      }
    }
  }
};

bool PngDecoder::available() { return true; }

bool PngDecoder::begins_as_png(const uint8_t* begin, size_t size) {
  return fastloader::begins_as_png(begin, size);
}

PngDecoder::PngDecoder() : state_(new State()) {}

PngDecoder::~PngDecoder() = default;

PictureSize PngDecoder::open(const uint8_t* data, size_t size, const PictureOptions& options) {
  state_->opened = state_->reading = false;
  state_->options = options;
  state_->file = read_png(data, size);
  const PngHeader& header = state_->file.header;
  refuse_above(options.pixel_limit, header.width, header.height);
  if (options.indices && header.color != PngColor::kPalette && header.color != PngColor::kGrey) {
    throw UnsupportedImage("a PNG of several values a pixel, which are no indices");
  }
  state_->opened = true;
  return {header.width, header.height};
}

void PngDecoder::begin(const PictureRegion& region) {
  if (!state_->opened) throw InvalidArgument("PngDecoder::begin() without open()");
  check_region(region, state_->file.header.width, state_->file.header.height);
  state_->opened = false;
  state_->start(region);
  state_->reading = true;
}

const uint8_t* PngDecoder::read_row() {
  if (!state_->reading) {
    throw InvalidArgument("PngDecoder::read_row() without a row left in the region");
  }
  return state_->next();
}

size_t PngDecoder::scratch_bytes() const {
  return state_->rows.capacity() + state_->rgb.capacity() + state_->line.capacity();
}

}  // namespace fastloader
