#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "image/ops/each_byte.h"
#include "image/ops/families.h"
#include "image/ops/in_pieces.h"

namespace fastloader {
namespace {

/// What each value of a channel becomes.
using ByteTable = std::array<uint8_t, 256>;
using RgbTables = std::array<ByteTable, Canvas::kRgb>;

constexpr ByteTable make_identity() {
  ByteTable table{};
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<uint8_t>(i);
  return table;
}
constexpr ByteTable kIdentity = make_identity();

/// The first value that is not below the threshold; 256 if all are.
int first_not_below(double threshold) {
  return static_cast<int>(std::ceil(std::clamp(threshold, 0.0, 256.0)));
}

// --- autocontrast -------------------------------------------------------------------------------

struct Range {
  uint8_t low = 255;
  uint8_t high = 0;

  void include(uint8_t lowest, uint8_t highest) {
    low = std::min(low, lowest);
    high = std::max(high, highest);
  }
};

/// What has been seen at each place of blocks: whole pixels, and whole vectors of 16 bytes.
struct BlockRange {
  static constexpr size_t kBytes = 16 * Canvas::kRgb;

  uint8_t low[kBytes];
  uint8_t high[kBytes];
};

void include(const uint8_t* __restrict block, BlockRange& __restrict range) {
  for (size_t i = 0; i < BlockRange::kBytes; ++i) {
    range.low[i] = block[i] < range.low[i] ? block[i] : range.low[i];
    range.high[i] = block[i] > range.high[i] ? block[i] : range.high[i];
  }
}

std::array<Range, Canvas::kRgb> ranges_of(Canvas& canvas) {
  BlockRange places;
  std::fill_n(places.low, BlockRange::kBytes, uint8_t{255});
  std::fill_n(places.high, BlockRange::kBytes, uint8_t{0});
  std::array<Range, Canvas::kRgb> ranges;
  in_pieces(canvas, [&](const uint8_t* byte, size_t pixels) {
    size_t left = pixels * Canvas::kRgb;
    for (; left >= BlockRange::kBytes; left -= BlockRange::kBytes, byte += BlockRange::kBytes) {
      include(byte, places);
    }
    for (size_t i = 0; i < left; ++i) ranges[i % Canvas::kRgb].include(byte[i], byte[i]);
  });
  for (size_t i = 0; i < BlockRange::kBytes; ++i) {
    ranges[i % Canvas::kRgb].include(places.low[i], places.high[i]);
  }
  return ranges;
}

ByteTable stretched(const Range& range) {
  if (range.high <= range.low) return kIdentity;
  // Pillow's arithmetic, each step rounded as Python rounds it.
  const double scale = 255.0 / static_cast<double>(range.high - range.low);
  const double offset = -static_cast<double>(range.low) * scale;
  ByteTable table;
  for (size_t i = 0; i < table.size(); ++i) {
    const double value = static_cast<double>(i) * scale + offset;
    table[i] = static_cast<uint8_t>(std::clamp(value, 0.0, 255.0));
  }
  return table;
}

// --- equalize -----------------------------------------------------------------------------------

using Histogram = std::array<uint64_t, 256>;
using RgbHistograms = std::array<Histogram, Canvas::kRgb>;

void count(const uint8_t* pixel, RgbHistograms& histograms) {
  ++histograms[0][pixel[0]];
  ++histograms[1][pixel[1]];
  ++histograms[2][pixel[2]];
}

RgbHistograms histograms_of(Canvas& canvas) {
  // Every other pixel is counted apart: neighbours often are the same, and a counter that was just
  // written is not ready again at once.
  RgbHistograms histograms{};
  RgbHistograms others{};
  in_pieces(canvas, [&](const uint8_t* pixel, size_t left) {
    for (; left >= 2; left -= 2, pixel += 2 * Canvas::kRgb) {
      count(pixel, histograms);
      count(pixel + Canvas::kRgb, others);
    }
    if (left != 0) count(pixel, histograms);
  });
  for (size_t c = 0; c < histograms.size(); ++c) {
    for (size_t i = 0; i < 256; ++i) histograms[c][i] += others[c][i];
  }
  return histograms;
}

ByteTable equalized(const Histogram& histogram, size_t pixels) {
  size_t last = 255;
  while (histogram[last] == 0) --last;
  // With one value only, all pixels are that, and the step is 0, too.
  const size_t step = (pixels - histogram[last]) / 255;
  if (step == 0) return kIdentity;
  ByteTable table;
  size_t below = step / 2;
  for (size_t i = 0; i < table.size(); ++i) {
    table[i] = static_cast<uint8_t>(std::min(below / step, size_t{255}));
    below += histogram[i];
  }
  return table;
}

RgbTables autocontrast_tables(Canvas& canvas) {
  const auto ranges = ranges_of(canvas);
  RgbTables tables;
  for (size_t c = 0; c < tables.size(); ++c) tables[c] = stretched(ranges[c]);
  return tables;
}

RgbTables equalize_tables(Canvas& canvas) {
  const auto histograms = histograms_of(canvas);
  RgbTables tables;
  for (size_t c = 0; c < tables.size(); ++c) {
    tables[c] = equalized(histograms[c], canvas.bytes() / Canvas::kRgb);
  }
  return tables;
}

void look_up_some(const RgbTables& tables, uint8_t* byte, size_t pixels) {
  const uint8_t* const red = tables[0].data();
  const uint8_t* const green = tables[1].data();
  const uint8_t* const blue = tables[2].data();
  for (; pixels != 0; --pixels, byte += Canvas::kRgb) {
    // All three are read first: what is written could be part of a table, as a compiler sees it.
    const uint8_t made[] = {red[byte[0]], green[byte[1]], blue[byte[2]]};
    std::copy_n(made, Canvas::kRgb, byte);
  }
}

void look_up(const RgbTables& tables, Canvas& canvas) {
  in_pieces(canvas, [&](uint8_t* rgb, size_t pixels) { look_up_some(tables, rgb, pixels); });
}

}  // namespace

void invert(Canvas& canvas) {
  each_byte(canvas, [](uint8_t value) { return static_cast<uint8_t>(255 - value); });
}

void posterize(int bits, Canvas& canvas) {
  const auto kept = static_cast<uint8_t>(0xff00 >> bits);
  each_byte(canvas, [kept](uint8_t value) { return static_cast<uint8_t>(value & kept); });
}

void solarize(double threshold, Canvas& canvas) {
  const int first = first_not_below(threshold);
  if (first > 255) return;
  each_byte(canvas, [from = static_cast<uint8_t>(first)](uint8_t value) {
    const auto inverted = static_cast<uint8_t>(255 - value);
    return value < from ? value : inverted;
  });
}

void solarize_add(int add, double threshold, Canvas& canvas) {
  const int first = first_not_below(threshold);
  if (first == 0) return;
  const auto last = static_cast<uint8_t>(first - 1);
  const auto by = static_cast<uint8_t>(std::min(std::abs(std::max(add, -255)), 255));
  if (add >= 0) {
    each_byte(canvas, [last, by](uint8_t value) {
      const auto sum = static_cast<uint8_t>(value + by);
      const uint8_t clipped = sum < value ? uint8_t{255} : sum;
      return value <= last ? clipped : value;
    });
  } else {
    each_byte(canvas, [last, by](uint8_t value) {
      const auto difference = static_cast<uint8_t>(value - by);
      const uint8_t clipped = difference > value ? uint8_t{0} : difference;
      return value <= last ? clipped : value;
    });
  }
}

void autocontrast(Canvas& canvas) { look_up(autocontrast_tables(canvas), canvas); }

void equalize(Canvas& canvas) { look_up(equalize_tables(canvas), canvas); }

}  // namespace fastloader
