#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <vector>

#include "image/jpeg/seek/file.h"

namespace fastloader::bindings {

/// Files of seek indices with the Python buffers that they lie in. A buffer that is held cannot be
/// closed or resized. It is let go under the GIL, which a decode thread has not: so this belongs to
/// Python, which keeps it as long as the jobs that use the files.
struct MappedSeekFiles {
  std::shared_ptr<SeekFiles> files;
  std::vector<pybind11::buffer_info> held;
};

}  // namespace fastloader::bindings
