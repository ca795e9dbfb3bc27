#include <pybind11/stl.h>

#include <cstdint>
#include <tuple>

#include "base/error.h"
#include "bindings/gil.h"
#include "bindings/register.h"
#include "image/jpeg/scans.h"

namespace py = pybind11;

namespace fastloader::bindings {
namespace {

/// (width, height, scans)
std::tuple<uint32_t, uint32_t, uint64_t> jpeg_scans(const py::buffer& data) {
  const py::buffer_info bytes = data.request();
  if (bytes.itemsize != 1 || bytes.ndim != 1 || (bytes.size > 1 && bytes.strides[0] != 1)) {
    throw InvalidArgument("jpeg_scans() takes bytes without gaps");
  }
  const WithoutGil unlocked;
  const JpegScans found =
      count_jpeg_scans(static_cast<const uint8_t*>(bytes.ptr), static_cast<size_t>(bytes.size));
  return {found.width, found.height, found.scans};
}

}  // namespace

void register_jpeg_scans(py::module_& module) {
  module.def("jpeg_scans", &jpeg_scans, py::arg("data"),
             "(width, height, scans) of a JPEG, from its markers; (0, 0, 0) of anything else.");
}

}  // namespace fastloader::bindings
