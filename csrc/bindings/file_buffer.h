#pragma once

#include <pybind11/pybind11.h>

#include "base/error.h"

namespace fastloader::bindings {

/// The bytes of a file that Python holds. As long as this lives, nobody can close or resize them.
/// Throws InvalidArgument for what is no run of bytes.
inline pybind11::buffer_info file_in(const pybind11::buffer& data) {
  pybind11::buffer_info bytes = data.request();
  if (bytes.itemsize != 1 || bytes.ndim != 1 || (bytes.size > 1 && bytes.strides[0] != 1)) {
    throw InvalidArgument("a file is bytes without gaps");
  }
  return bytes;
}

}  // namespace fastloader::bindings
