#include "image/jpeg/kernels/progressive_places.h"
#include "image/jpeg/kernels/progressive_tables.h"

#if defined(__aarch64__)

namespace fastloader {
namespace {

bool read_first(ScanRun& run, size_t mcus) {
  return ProgressiveDecoder<PlainPlaces>::read_first(run, mcus);
}

bool read_band(ScanRun& run, const BandBlocks& blocks) {
  return ProgressiveDecoder<PlainPlaces>::read_band(run, blocks);
}

bool refine_band(ScanRun& run, const BandBlocks& blocks) {
  return ProgressiveDecoder<PlainPlaces>::refine_band(run, blocks);
}

}  // namespace

const JpegProgressiveKernels kJpegProgressiveNeon = {read_first, read_band, refine_band};

}  // namespace fastloader

#endif
