#include "image/ops/fill.h"

#include "image/ops/checks.h"

namespace fastloader {

void check_fill(const char* operation, const std::vector<double>& numbers, size_t first) {
  for (size_t i = first; i < first + 3; ++i) check_whole(operation, "fill", numbers[i], 0, 255);
}

Fill fill_of(const std::vector<double>& numbers, size_t first) {
  Fill fill;
  for (size_t c = 0; c < 3; ++c) fill.rgb[c] = static_cast<uint8_t>(numbers[first + c]);
  return fill;
}

}  // namespace fastloader
