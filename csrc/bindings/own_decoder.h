#pragma once

#include "pipeline/sample_decoder.h"

namespace fastloader::bindings {

/// Returns the calling thread's decoder, for samples that Python hands over one by one.
inline SampleDecoder& own_decoder() {
  thread_local SampleDecoder decoder;
  return decoder;
}

}  // namespace fastloader::bindings
