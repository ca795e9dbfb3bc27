#include "image/ops/checks.h"

#include <cmath>
#include <string>

#include "base/error.h"

namespace fastloader {

void check_whole(const char* operation, const char* what, double value, double least, double most) {
  // Written so that NaN is refused.
  if (value >= least && value <= most && std::trunc(value) == value) return;
  throw InvalidArgument(std::string(operation) + ": " + what + " must be a whole number from " +
                        std::to_string(static_cast<int64_t>(least)) + " to " +
                        std::to_string(static_cast<int64_t>(most)) + ", not " +
                        std::to_string(value));
}

void check_fill(const char* operation, const std::vector<double>& numbers, size_t first) {
  for (size_t i = first; i < first + 3; ++i) check_whole(operation, "fill", numbers[i], 0, 255);
}

Fill fill_of(const std::vector<double>& numbers, size_t first) {
  Fill fill;
  for (size_t c = 0; c < 3; ++c) fill.rgb[c] = static_cast<uint8_t>(numbers[first + c]);
  return fill;
}

ImageSize checked_size(const char* operation, int64_t width, int64_t height) {
  constexpr auto kEdge = static_cast<int64_t>(kMaxImageEdge);
  // The edges come first: their product is then far from overflowing.
  if (width < 1 || height < 1 || width > kEdge || height > kEdge ||
      width * height > kMaxMadePixels) {
    throw InvalidArgument(std::string(operation) + " would make a picture of " +
                          std::to_string(width) + " x " + std::to_string(height) + " pixels");
  }
  return {static_cast<size_t>(height), static_cast<size_t>(width)};
}

}  // namespace fastloader
