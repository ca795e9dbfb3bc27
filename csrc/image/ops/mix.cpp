#include <algorithm>
#include <cstring>
#include <string>

#include "base/error.h"
#include "image/ops/blend.h"
#include "image/ops/families.h"

namespace fastloader {
namespace {

constexpr size_t kLanes = FloatLanes::kCount;

FloatLanes load(const float* numbers) {
  FloatLanes made;
  std::memcpy(made.part, numbers, sizeof(made.part));
  return made;
}

void store(const FloatLanes& lanes, float* numbers) {
  std::memcpy(numbers, lanes.part, sizeof(lanes.part));
}

/// Some bytes of a picture, of which fewer than a whole lane's may be left.
FloatLanes some_of(const uint8_t* bytes, size_t left) {
  if (left >= kLanes) return FloatLanes::of(bytes);
  uint8_t rest[kLanes] = {};
  std::memcpy(rest, bytes, left);
  return FloatLanes::of(rest);
}

std::string text_of(const ImageSize& size) {
  return std::to_string(size.width) + "x" + std::to_string(size.height);
}

Canvas::Mix& begun(const char* operation, Canvas& canvas) {
  Canvas::Mix& mix = canvas.mix();
  if (!mix.begun) throw InvalidArgument(std::string(operation) + " without mix_begin before it");
  if (!(mix.size == canvas.size())) {
    throw InvalidArgument(std::string(operation) + ": a picture of " + text_of(canvas.size()) +
                          " pixels in a mix of " + text_of(mix.size));
  }
  return mix;
}

/// For loops over bytes, `at` of which are done.
void now_and_then_throw_if_stopped(size_t at, const Canvas& canvas) {
  constexpr size_t kPiece = size_t{1} << 18;
  static_assert(kPiece % kLanes == 0);
  if (at % kPiece == 0) canvas.throw_if_stopped();
}

/// The sum becomes change(sum, picture), and the kept picture is there again.
template <class Change>
void take_in(Canvas::Mix& mix, Canvas& canvas, const Change& change) {
  const size_t bytes = canvas.bytes();
  uint8_t* pixels = canvas.pixels();
  for (size_t i = 0; i < bytes; i += kLanes) {
    now_and_then_throw_if_stopped(i, canvas);
    float* sum = mix.sum.data() + i;
    store(change(load(sum), some_of(pixels + i, bytes - i)), sum);
  }
  std::memcpy(pixels, mix.original.data(), bytes);
}

}  // namespace

void mix_begin(float weight, Canvas& canvas) {
  Canvas::Mix& mix = canvas.mix();
  if (mix.begun) throw InvalidArgument("mix_begin within a mix");
  const size_t bytes = canvas.bytes();
  const size_t lanes = (bytes + kLanes - 1) / kLanes * kLanes;
  if (mix.original.size() < bytes) mix.original.resize(bytes);
  if (mix.sum.size() < lanes) mix.sum.resize(lanes);
  const uint8_t* pixels = canvas.pixels();
  const FloatLanes weights = FloatLanes::all(weight);
  std::memcpy(mix.original.data(), pixels, bytes);
  for (size_t i = 0; i < bytes; i += kLanes) {
    now_and_then_throw_if_stopped(i, canvas);
    store(weights * some_of(pixels + i, bytes - i), mix.sum.data() + i);
  }
  mix.size = canvas.size();
  mix.begun = true;
}

void mix_add(float weight, Canvas& canvas) {
  const FloatLanes weights = FloatLanes::all(weight);
  take_in(begun("mix_add", canvas), canvas, [&](const FloatLanes& sum, const FloatLanes& picture) {
    return sum + weights * picture;
  });
}

void mix_blend(float factor, Canvas& canvas) {
  const FloatLanes factors = FloatLanes::all(factor);
  take_in(begun("mix_blend", canvas), canvas,
          [&](const FloatLanes& sum, const FloatLanes& picture) {
            uint8_t blended[kLanes];
            blend(sum, picture, factors).to(blended);
            return FloatLanes::of(blended);
          });
}

void mix_end(float factor, Canvas& canvas) {
  Canvas::Mix& mix = begun("mix_end", canvas);
  const FloatLanes factors = FloatLanes::all(factor);
  const size_t bytes = canvas.bytes();
  uint8_t* pixels = canvas.pixels();
  for (size_t i = 0; i < bytes; i += kLanes) {
    now_and_then_throw_if_stopped(i, canvas);
    uint8_t made[kLanes];
    load(mix.sum.data() + i).to(made);
    const FloatLanes kept = some_of(mix.original.data() + i, bytes - i);
    blend(kept, FloatLanes::of(made), factors).to(made);
    std::memcpy(pixels + i, made, std::min(kLanes, bytes - i));
  }
  mix.begun = false;
}

}  // namespace fastloader
