#include "image/jpeg/kernels/progressive_places.h"
#include "image/jpeg/kernels/progressive_tables.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define FASTLOADER_BMI2 __attribute__((target("avx2,bmi,bmi2,popcnt")))

namespace fastloader {
namespace {

/// 16 lanes of ones where these bits are set.
FASTLOADER_BMI2 inline __m256i lanes(uint64_t bits) {
  const __m256i each = _mm256_setr_epi16(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096,
                                         8192, 16384, INT16_MIN);
  const __m256i all = _mm256_set1_epi16(static_cast<int16_t>(bits));
  return _mm256_cmpeq_epi16(_mm256_and_si256(all, each), each);
}

FASTLOADER_BMI2 void refine_lanes(int16_t* coefficients, uint64_t grown, uint64_t made,
                                  uint64_t positive, unsigned low) {
  constexpr unsigned kLanes = 16;
  const __m256i bit = _mm256_set1_epi16(coefficient_of(1, low));
  for (unsigned i = 0; i < kJpegBlock; i += kLanes) {
    if (static_cast<uint16_t>((grown | made) >> i) == 0) continue;
    auto* const at = reinterpret_cast<__m256i*>(coefficients + i);
    const __m256i values = _mm256_load_si256(at);
    const __m256i added = _mm256_and_si256(bit, lanes((grown | made) >> i));
    // Those that are made are 0 now.
    const __m256i negative =
        _mm256_or_si256(_mm256_srai_epi16(values, 15), lanes((made & ~positive) >> i));
    _mm256_store_si256(
        at,
        _mm256_add_epi16(values, _mm256_sub_epi16(_mm256_xor_si256(added, negative), negative)));
  }
}

/// Without pdep, which takes up to a hundred times as long on some CPUs as on others.
struct Avx2Places : PlainPlaces {
  static FASTLOADER_JPEG_INLINE void refine(int16_t* coefficients, uint64_t grown, uint64_t made,
                                            uint64_t positive, unsigned low) {
    refine_lanes(coefficients, grown, made, positive, low);
  }
};

struct Bmi2Places : Avx2Places {
  // Not the intrinsic: the compiler makes it part only of functions that have the instruction set
  // themselves, which the templates in between have not.
  static FASTLOADER_JPEG_INLINE uint64_t spread(uint64_t bits, uint64_t places) {
    uint64_t found;
    asm("pdep %2, %1, %0" : "=r"(found) : "r"(bits), "rm"(places));
    return found;
  }

  static FASTLOADER_JPEG_INLINE uint64_t nth_of(uint64_t places, uint64_t hot) {
    return spread(hot, places);
  }
};

template <class Places>
FASTLOADER_BMI2 bool read_first(ScanRun& run, size_t mcus) {
  return ProgressiveDecoder<Places>::read_first(run, mcus);
}

template <class Places>
FASTLOADER_BMI2 bool read_band(ScanRun& run, const BandBlocks& blocks) {
  return ProgressiveDecoder<Places>::read_band(run, blocks);
}

template <class Places>
FASTLOADER_BMI2 bool refine_band(ScanRun& run, const BandBlocks& blocks) {
  return ProgressiveDecoder<Places>::refine_band(run, blocks);
}

}  // namespace

const JpegProgressiveKernels kJpegProgressiveBmi2 = {read_first<Bmi2Places>, read_band<Bmi2Places>,
                                                     refine_band<Bmi2Places>};
const JpegProgressiveKernels kJpegProgressiveAvx2 = {read_first<Avx2Places>, read_band<Avx2Places>,
                                                     refine_band<Avx2Places>};

}  // namespace fastloader

#endif
