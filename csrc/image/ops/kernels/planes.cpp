#include "image/ops/kernels/planes.h"

#include "image/resize/split_rgb.h"

namespace fastloader {

static_assert(RgbPlanes::kPixels % kSplitPixels == 0, "no pixels are left over here");

void split(const uint8_t* rgb, RgbPlanes& planes) {
  for (size_t i = 0; i < RgbPlanes::kPixels; i += kSplitPixels) {
    split_some_rgb(rgb + i * 3, planes.red + i, planes.green + i, planes.blue + i);
  }
}

#if defined(__SSE2__)
namespace {

/// Undoes SplitStep: takes the bytes at even places to the front and those at odd ones behind them.
struct JoinStep {
  __m128i first;
  __m128i second;
  __m128i third;

  JoinStep next() const {
    const __m128i low = _mm_set1_epi16(0xff);
    const __m128i even = _mm_packus_epi16(_mm_and_si128(first, low), _mm_and_si128(second, low));
    const __m128i odd = _mm_packus_epi16(_mm_srli_epi16(first, 8), _mm_srli_epi16(second, 8));
    const __m128i last = _mm_packus_epi16(_mm_and_si128(third, low), _mm_srli_epi16(third, 8));
    return {even, _mm_unpacklo_epi64(last, odd), _mm_unpackhi_epi64(odd, last)};
  }
};

const __m128i* vector(const uint8_t* bytes) { return reinterpret_cast<const __m128i*>(bytes); }
__m128i* vector(uint8_t* bytes) { return reinterpret_cast<__m128i*>(bytes); }

}  // namespace

void join(const RgbPlanes& planes, uint8_t* rgb) {
  for (size_t i = 0; i < RgbPlanes::kPixels; i += 16) {
    const JoinStep step{_mm_load_si128(vector(planes.red + i)),
                        _mm_load_si128(vector(planes.green + i)),
                        _mm_load_si128(vector(planes.blue + i))};
    const JoinStep joined = step.next().next().next().next();
    __m128i* to = vector(rgb + i * 3);
    _mm_storeu_si128(to, joined.first);
    _mm_storeu_si128(to + 1, joined.second);
    _mm_storeu_si128(to + 2, joined.third);
  }
}
#elif defined(__aarch64__)
void join(const RgbPlanes& planes, uint8_t* rgb) {
  for (size_t i = 0; i < RgbPlanes::kPixels; i += 16) {
    const uint8x16x3_t apart{
        {vld1q_u8(planes.red + i), vld1q_u8(planes.green + i), vld1q_u8(planes.blue + i)}};
    vst3q_u8(rgb + i * 3, apart);
  }
}
#else
void join(const RgbPlanes& planes, uint8_t* rgb) {
  for (size_t i = 0; i < RgbPlanes::kPixels; ++i) {
    rgb[i * 3] = planes.red[i];
    rgb[i * 3 + 1] = planes.green[i];
    rgb[i * 3 + 2] = planes.blue[i];
  }
}
#endif

}  // namespace fastloader
