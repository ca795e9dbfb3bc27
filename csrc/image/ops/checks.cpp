#include "image/ops/checks.h"

#include <cmath>
#include <cstdio>
#include <string>

#include "base/error.h"

namespace fastloader {
namespace {

std::string text_of(double number) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.15g", number);
  return text;
}

void require(bool allowed, const char* operation, const char* what, double value,
             const char* wanted, double least, double most) {
  if (allowed) return;
  throw InvalidArgument(std::string(operation) + ": " + what + " must be " + wanted + " from " +
                        text_of(least) + " to " + text_of(most) + ", not " + text_of(value));
}

/// NaN is not within any limits.
bool within(double value, double least, double most) { return value >= least && value <= most; }

}  // namespace

void check_number(const char* operation, const char* what, double value, double least,
                  double most) {
  require(within(value, least, most), operation, what, value, "a number", least, most);
}

void check_whole(const char* operation, const char* what, double value, double least, double most) {
  require(within(value, least, most) && std::trunc(value) == value, operation, what, value,
          "a whole number", least, most);
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
