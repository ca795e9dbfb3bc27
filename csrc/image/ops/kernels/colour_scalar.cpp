#include <algorithm>
#include <cstring>

#include "image/ops/blend.h"
#include "image/ops/kernels/colour.h"
#include "image/ops/kernels/planes.h"

namespace fastloader {
namespace {

constexpr size_t kPixels = RgbPlanes::kPixels;

// --- blends with grey ---------------------------------------------------------------------------

struct GreyPlane {
  alignas(64) uint8_t grey[RgbPlanes::kPixels];
};

/// Pillow's conversion from RGB to L: ITU-R 601-2 in fixed point, rounded.
void to_grey(const RgbPlanes& planes, GreyPlane& made) {
  for (size_t i = 0; i < RgbPlanes::kPixels; ++i) {
    const uint32_t sum = uint16_t{planes.red[i]} * uint32_t{19595} +
                         uint16_t{planes.green[i]} * uint32_t{38470} +
                         uint16_t{planes.blue[i]} * uint32_t{7471} + 0x8000u;
    made.grey[i] = static_cast<uint8_t>(sum >> 16);
  }
}

void blend_plane(const GreyPlane& grey, float factor, uint8_t* plane) {
  const FloatLanes factors = FloatLanes::all(factor);
  for (size_t i = 0; i < RgbPlanes::kPixels; i += FloatLanes::kCount) {
    blend(FloatLanes::of(grey.grey + i), FloatLanes::of(plane + i), factors).to(plane + i);
  }
}

void blend_bytes(uint8_t other, float factor, uint8_t* bytes, size_t count) {
  const FloatLanes others = FloatLanes::all(static_cast<float>(other));
  const FloatLanes factors = FloatLanes::all(factor);
  for (; count >= FloatLanes::kCount; count -= FloatLanes::kCount, bytes += FloatLanes::kCount) {
    blend(others, FloatLanes::of(bytes), factors).to(bytes);
  }
  uint8_t rest[FloatLanes::kCount] = {};
  std::memcpy(rest, bytes, count);
  blend(others, FloatLanes::of(rest), factors).to(rest);
  std::memcpy(bytes, rest, count);
}

uint32_t sum_of_greys(const uint8_t* rgb, size_t pixels) {
  uint32_t sum = 0;
  look_at_planes(rgb, pixels, [&sum](const RgbPlanes& planes) {
    GreyPlane grey;
    to_grey(planes, grey);
    uint32_t some = 0;  // The black pixels behind the last one add nothing.
    for (const uint8_t value : grey.grey) some += value;
    sum += some;
  });
  return sum;
}

void saturate(float factor, uint8_t* rgb, size_t pixels) {
  change_planes(rgb, pixels, [factor](RgbPlanes& planes) {
    GreyPlane grey;
    to_grey(planes, grey);
    blend_plane(grey, factor, planes.red);
    blend_plane(grey, factor, planes.green);
    blend_plane(grey, factor, planes.blue);
  });
}

void grayscale(uint8_t* rgb, size_t pixels) {
  change_planes(rgb, pixels, [](RgbPlanes& planes) {
    GreyPlane grey;
    to_grey(planes, grey);
    std::copy_n(grey.grey, kPixels, planes.red);
    std::copy_n(grey.grey, kPixels, planes.green);
    std::copy_n(grey.grey, kPixels, planes.blue);
  });
}

// --- hue ----------------------------------------------------------------------------------------

// Pillow computes in double what it then rounds to float or to bytes. Here all of it is float or
// integer, in an order of operations that gives the same bytes: there are few enough colours to
// compare all of them, both ways, which is how this order was found. No other is as good. Each step
// is its own loop over bytes that lie side by side, with no branch.

// A third of a turn is 85 steps of the hue; a sixth, which is a sector, is 42 and a half.
constexpr int kThird = 85;

struct HsvPlanes {
  alignas(64) uint8_t hue[kPixels];
  alignas(64) uint8_t saturation[kPixels];
  alignas(64) uint8_t value[kPixels];
};

uint8_t lower(uint8_t a, uint8_t b) { return a < b ? a : b; }
uint8_t higher(uint8_t a, uint8_t b) { return a > b ? a : b; }

void to_hsv(const RgbPlanes& __restrict rgb, HsvPlanes& __restrict hsv) {
  // In sixths of a turn from red, the hue is base + x, or base - x, where x is how far the middle
  // channel lies below the highest, measured in the distance between highest and lowest.
  alignas(64) uint8_t spread[kPixels];    // From the lowest channel to the highest.
  alignas(64) uint8_t distance[kPixels];  // The same, but 1 for grey.
  alignas(64) uint8_t below[kPixels];     // From the middle one to the highest.
  alignas(64) uint8_t base[kPixels];      // 1 more than it, since one is -1.
  alignas(64) uint8_t sign[kPixels];      // 1 more than it.
  alignas(64) uint8_t divisor[kPixels];   // The highest, but 1 for black.
  for (size_t i = 0; i < kPixels; ++i) {
    const uint8_t red = rgb.red[i];
    const uint8_t green = rgb.green[i];
    const uint8_t blue = rgb.blue[i];
    const uint8_t high = higher(red, higher(green, blue));
    const uint8_t low = lower(red, lower(green, blue));
    const auto middle = static_cast<uint8_t>(red ^ green ^ blue ^ high ^ low);
    hsv.value[i] = high;
    divisor[i] = higher(high, 1);
    spread[i] = static_cast<uint8_t>(high - low);
    // Grey has no hue, and its saturation of 0 makes whatever comes out here go unseen.
    distance[i] = higher(spread[i], 1);
    below[i] = static_cast<uint8_t>(high - middle);
    // Of equal channels, the one that Pillow asks for first counts as the highest. With two lowest,
    // x is 1 and both formulas agree.
    const bool red_is_high = red == high;
    const bool green_is_high = green == high;
    const uint8_t rising = red_is_high ? uint8_t{0} : green_is_high ? uint8_t{2} : uint8_t{4};
    const uint8_t next = red_is_high ? green : green_is_high ? blue : red;
    const bool rises = next == low;
    base[i] = static_cast<uint8_t>(rises ? rising : rising + 2);
    sign[i] = rises ? uint8_t{2} : uint8_t{0};
  }
  const FloatLanes one = FloatLanes::all(1.0f);
  const FloatLanes six = FloatLanes::all(6.0f);
  const FloatLanes most = FloatLanes::all(255.0f);
  for (size_t i = 0; i < kPixels; i += FloatLanes::kCount) {
    const FloatLanes x = FloatLanes::of(below + i) / FloatLanes::of(distance + i);
    const FloatLanes sixths =
        (FloatLanes::of(base + i) - one) + (FloatLanes::of(sign + i) - one) * x;
    ((sixths / six).with_negatives_raised() * most).to(hsv.hue + i);
    const FloatLanes part = FloatLanes::of(spread + i) / FloatLanes::of(divisor + i);
    (part * most).to(hsv.saturation + i);
  }
}

/// The sixth of the circle in which a hue lies; the highest one is a whole turn, and has a number
/// of its own. Two 85ths in fixed point: a product of 16 bits, which vectors have.
constexpr uint8_t sector_of(uint8_t hue) { return static_cast<uint8_t>((hue * 193) >> 13); }

constexpr bool sectors_are_exact() {
  for (int hue = 0; hue < 256; ++hue) {
    if (sector_of(static_cast<uint8_t>(hue)) != 2 * hue / kThird) return false;
  }
  return true;
}
static_assert(sectors_are_exact());

void to_rgb(const HsvPlanes& __restrict hsv, RgbPlanes& __restrict rgb) {
  alignas(64) uint8_t sector[kPixels];  // 0 to 6: the highest hue is a whole turn.
  alignas(64) uint8_t fall[kPixels];    // Of the middle channel; the lowest falls by kThird.
  alignas(64) uint8_t low[kPixels];
  alignas(64) uint8_t middle[kPixels];
  for (size_t i = 0; i < kPixels; ++i) sector[i] = sector_of(hsv.hue[i]);
  for (size_t i = 0; i < kPixels; ++i) {
    const auto into = static_cast<uint8_t>(2 * hsv.hue[i] - kThird * sector[i]);
    const auto left = static_cast<uint8_t>(kThird - into);
    fall[i] = (sector[i] & 1) != 0 ? into : left;
  }
  for (size_t i = 0; i < kPixels; ++i) {
    // value * (1 - saturation / 255), rounded. No such product is halfway between two integers.
    const auto sum = static_cast<uint16_t>(hsv.value[i] * hsv.saturation[i] + 128);
    const auto less = static_cast<uint16_t>((sum + (sum >> 8)) >> 8);
    low[i] = static_cast<uint8_t>(hsv.value[i] - less);
  }
  const FloatLanes half = FloatLanes::all(0.5f);
  const FloatLanes whole = FloatLanes::all(1.0f / (255.0f * kThird));
  for (size_t i = 0; i < kPixels; i += FloatLanes::kCount) {
    // The same for a part of the saturation, in float: the product is below 2^24, so it is exact.
    const FloatLanes product = FloatLanes::of(hsv.saturation + i) * FloatLanes::of(fall + i) *
                               FloatLanes::of(hsv.value + i);
    (product * whole + half).to(middle + i);
  }
  for (size_t i = 0; i < kPixels; ++i) {
    middle[i] = static_cast<uint8_t>(hsv.value[i] - middle[i]);
  }
  for (size_t i = 0; i < kPixels; ++i) {
    const uint8_t number = sector[i];
    const uint8_t high = hsv.value[i];
    const uint8_t between = middle[i];
    const uint8_t least = low[i];
    // All bits where the pixel is in that sector.
    const auto in = [number](uint8_t which) { return number == which ? 0xff : 0; };
    const int red_is_high = in(0) | in(5) | in(6);
    const int red_is_least = in(2) | in(3);
    const int green_is_high = in(1) | in(2);
    const int green_is_least = in(4) | in(5);
    const int blue_is_high = in(3) | in(4);
    const int blue_is_least = in(0) | in(1) | in(6);
    const auto choose = [=](int is_high, int is_least) {
      return static_cast<uint8_t>((high & is_high) | (least & is_least) |
                                  (between & ~(is_high | is_least)));
    };
    rgb.red[i] = choose(red_is_high, red_is_least);
    rgb.green[i] = choose(green_is_high, green_is_least);
    rgb.blue[i] = choose(blue_is_high, blue_is_least);
  }
}

void hue(uint8_t shift, uint8_t* rgb, size_t pixels) {
  change_planes(rgb, pixels, [shift](RgbPlanes& planes) {
    HsvPlanes hsv;
    to_hsv(planes, hsv);
    for (uint8_t& each : hsv.hue) each = static_cast<uint8_t>(each + shift);
    to_rgb(hsv, planes);
  });
}

}  // namespace

const ColourKernels kColourScalar = {blend_bytes, sum_of_greys, saturate, grayscale, hue};

}  // namespace fastloader
