#include <pybind11/stl.h>

#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include "bindings/file_buffer.h"
#include "bindings/gil.h"
#include "bindings/register.h"
#include "image/jpeg/libjpeg/recode.h"
#include "image/jpeg/scans.h"

namespace py = pybind11;

namespace fastloader::bindings {
namespace {

/// (width, height, scans)
std::tuple<uint32_t, uint32_t, uint64_t> jpeg_scans(const py::buffer& data) {
  const py::buffer_info bytes = file_in(data);
  const WithoutGil unlocked;
  const JpegScans found =
      count_jpeg_scans(static_cast<const uint8_t*>(bytes.ptr), static_cast<size_t>(bytes.size));
  return {found.width, found.height, found.scans};
}

std::optional<py::bytes> jpeg_as_sequential(const py::buffer& data) {
  const py::buffer_info bytes = file_in(data);
  std::optional<std::vector<uint8_t>> file;
  {
    const WithoutGil unlocked;
    file = recode_as_sequential(static_cast<const uint8_t*>(bytes.ptr),
                                static_cast<size_t>(bytes.size));
  }
  if (!file) return std::nullopt;
  return py::bytes(reinterpret_cast<const char*>(file->data()), file->size());
}

}  // namespace

void register_jpeg_scans(py::module_& module) {
  module.def("jpeg_scans", &jpeg_scans, py::arg("data"),
             "(width, height, scans) of a JPEG, from its markers; (0, 0, 0) of anything else.");
  module.def("jpeg_as_sequential", &jpeg_as_sequential, py::arg("data"),
             "A progressive JPEG as a sequential one of the same pixels; None: leave it as it is.");
}

}  // namespace fastloader::bindings
