#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <vector>

#include "image/jpeg/seek/file.h"
#include "pipeline/sample_decoder.h"

// What the bindings that decode share.
namespace fastloader::bindings {

/// Files of seek indices with the Python buffers that they lie in. A buffer that is held cannot be
/// closed or resized. It is let go under the GIL, which a decode thread has not: so this belongs to
/// Python, which keeps it as long as the jobs that use the files.
struct MappedSeekFiles {
  std::shared_ptr<SeekFiles> files;
  std::vector<pybind11::buffer_info> held;
};

/// Returns the calling thread's decoder, for samples that Python hands over one by one.
inline SampleDecoder& own_decoder() {
  thread_local SampleDecoder decoder;
  return decoder;
}

}  // namespace fastloader::bindings
