#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "jpeg_samples.h"

// Which part of a picture's coefficients comes in which scan.

namespace fastloader::testing {

struct JpegScan {
  std::vector<size_t> planes;  ///< in the frame's order
  uint8_t first = 0;           ///< of the band of coefficients
  uint8_t last = 63;
  uint8_t high = 0;  ///< the bits from this one up have come before, if it is not 0
  uint8_t low = 0;   ///< those below this one are to come

  // How it is written.
  bool progressive = false;
  uint32_t restart = 0;         ///< MCUs between restart markers
  uint32_t longest_run = 1;     ///< blocks that end together, in a scan of higher coefficients
  std::array<uint8_t, 4> dc{};  ///< the number of each plane's table
  std::array<uint8_t, 4> ac{};
};

inline JpegScan progressive_scan(std::vector<size_t> planes, int first, int last, int high,
                                 int low) {
  JpegScan scan;
  scan.planes = std::move(planes);
  scan.first = static_cast<uint8_t>(first);
  scan.last = static_cast<uint8_t>(last);
  scan.high = static_cast<uint8_t>(high);
  scan.low = static_cast<uint8_t>(low);
  scan.progressive = true;
  return scan;
}

/// That of libjpeg, jpeg_simple_progression().
inline std::vector<JpegScan> usual_script(size_t planes) {
  if (planes == 1) {
    return {progressive_scan({0}, 0, 0, 0, 1),  progressive_scan({0}, 1, 5, 0, 2),
            progressive_scan({0}, 6, 63, 0, 2), progressive_scan({0}, 1, 63, 2, 1),
            progressive_scan({0}, 0, 0, 1, 0),  progressive_scan({0}, 1, 63, 1, 0)};
  }
  return {progressive_scan({0, 1, 2}, 0, 0, 0, 1), progressive_scan({0}, 1, 5, 0, 2),
          progressive_scan({2}, 1, 63, 0, 1),      progressive_scan({1}, 1, 63, 0, 1),
          progressive_scan({0}, 6, 63, 0, 2),      progressive_scan({0}, 1, 63, 2, 1),
          progressive_scan({0, 1, 2}, 0, 0, 1, 0), progressive_scan({2}, 1, 63, 1, 0),
          progressive_scan({1}, 1, 63, 1, 0),      progressive_scan({0}, 1, 63, 1, 0)};
}

/// Any order, bands and bits that the standard allows, until everything has come.
class RandomScript {
 public:
  RandomScript(size_t planes, Random& random) : random_(random), low_(planes) {
    for (auto& plane : low_) plane.fill(kUnsent);
  }

  std::vector<JpegScan> make() {
    std::vector<size_t> open;
    while (!(open = unfinished()).empty()) {
      const size_t plane = open[random_.below(static_cast<uint32_t>(open.size()))];
      const int dc = low_[plane][0];
      const bool only_dc =
          std::all_of(low_[plane].begin() + 1, low_[plane].end(), [](int low) { return low == 0; });
      if (dc == kUnsent || (dc > 0 && (only_dc || random_.chance(40)))) {
        add_dc(plane);
      } else {
        add_band(plane);
      }
    }
    return script_;
  }

 private:
  static constexpr int kUnsent = -1;
  static constexpr size_t kMany = 12;

  std::vector<size_t> unfinished() const {
    std::vector<size_t> open;
    for (size_t p = 0; p < low_.size(); ++p) {
      if (std::any_of(low_[p].begin(), low_[p].end(), [](int low) { return low != 0; })) {
        open.push_back(p);
      }
    }
    return open;
  }

  /// The lowest bit of what is sent next. After many scans nothing is left for others: a decoder
  /// takes 100 at most.
  int next_low(int now) {
    if (now != kUnsent) return now - 1;
    const bool whole = script_.size() > kMany || random_.chance(50);
    return whole ? 0 : static_cast<int>(random_.between(1, 3));
  }

  void add_dc(size_t plane) {
    const int now = low_[plane][0];
    const int low = next_low(now);
    std::vector<size_t> together;
    for (size_t p = 0; p < low_.size(); ++p) {
      if (p == plane || (low_[p][0] == now && random_.chance(70))) together.push_back(p);
    }
    for (const size_t p : together) low_[p][0] = low;
    script_.push_back(progressive_scan(together, 0, 0, now == kUnsent ? 0 : now, low));
  }

  void add_band(size_t plane) {
    std::array<int, 64>& lows = low_[plane];
    size_t first = random_.between(1, 63);
    while (lows[first] == 0) first = first == 63 ? 1 : first + 1;
    const int now = lows[first];
    const bool whole = script_.size() > kMany || random_.chance(75);
    while (whole && first > 1 && lows[first - 1] == now) --first;
    size_t last = first;
    while (last < 63 && lows[last + 1] == now && (whole || random_.chance(80))) ++last;
    const int low = next_low(now);
    std::fill(lows.begin() + first, lows.begin() + last + 1, low);
    script_.push_back(progressive_scan({plane}, static_cast<int>(first), static_cast<int>(last),
                                       now == kUnsent ? 0 : now, low));
  }

  Random& random_;
  std::vector<std::array<int, 64>> low_;  // of each coefficient: the lowest bit that has come
  std::vector<JpegScan> script_;
};

/// One scan, or several that share the components among them.
inline std::vector<JpegScan> sequential_script(size_t planes, bool several, Random& random) {
  std::vector<JpegScan> script(1);
  for (size_t p = 0; p < planes; ++p) {
    if (several && p > 0 && (p == 1 || random.chance(50))) script.emplace_back();
    script.back().planes.push_back(p);
  }
  return script;
}

}  // namespace fastloader::testing
