#pragma once

#include <cstdint>

namespace fastloader::jpeg_ycc {

// The colours of JFIF, by the factors of jdcolor.c, which have 16 bits of fraction. What is added
// to y depends on cb and cr without their middle, 128.

constexpr int kFractionBits = 16;
constexpr int kHalf = 1 << (kFractionBits - 1);

constexpr int red_above_y(int cr) { return (91881 * cr + kHalf) >> kFractionBits; }
constexpr int blue_above_y(int cb) { return (116130 * cb + kHalf) >> kFractionBits; }
constexpr int green_above_y(int cb, int cr) {
  return (-22554 * cb - 46802 * cr + kHalf) >> kFractionBits;
}

// The same in 16 bits. Vectors have an instruction for a product divided by 2^15 and rounded; what
// is left of the factor for red is multiplied by that, after cr itself; for blue, after twice cb.
constexpr int kShortFractionBits = 15;
constexpr int16_t kRedOfCr = 13173;
constexpr int16_t kBlueOfCb = -7471;

/// The factors for green are even, so that their halves say as much with a bit less.
constexpr int16_t kGreenOfCb = -11277;
constexpr int16_t kGreenOfCr = -23401;
static_assert(2 * kGreenOfCb == -22554 && 2 * kGreenOfCr == -46802);

constexpr int short_product(int number, int16_t factor) {
  return (number * factor + (1 << (kShortFractionBits - 1))) >> kShortFractionBits;
}

constexpr bool short_factors_are_exact() {
  for (int c = -128; c < 128; ++c) {
    if (c + short_product(c, kRedOfCr) != red_above_y(c)) return false;
    if (2 * c + short_product(c, kBlueOfCb) != blue_above_y(c)) return false;
  }
  return true;
}
static_assert(short_factors_are_exact());

}  // namespace fastloader::jpeg_ycc
