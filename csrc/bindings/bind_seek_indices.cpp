#include <pybind11/stl.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "bindings/gil.h"
#include "bindings/register.h"
#include "image/jpeg/seek/file.h"
#include "image/jpeg/seek/index.h"
#include "image/jpeg/seek/writer.h"

namespace py = pybind11;

namespace fastloader::bindings {
namespace {

SeekBytes bytes_in(const py::buffer& data) {
  const py::buffer_info bytes = data.request();
  if (bytes.itemsize != 1 || bytes.ndim != 1 || (bytes.size > 1 && bytes.strides[0] != 1)) {
    throw InvalidArgument("a file is bytes without gaps");
  }
  return {static_cast<const uint8_t*>(bytes.ptr), static_cast<size_t>(bytes.size)};
}

std::optional<py::bytes> jpeg_seek_index(const py::buffer& data,
                                         const std::optional<uint32_t>& segments) {
  const SeekBytes file = bytes_in(data);
  if (segments && (*segments < 1 || *segments > kMostSegments)) {
    throw InvalidArgument("a row has 1 to " + std::to_string(kMostSegments) + " segments, not " +
                          std::to_string(*segments));
  }
  std::vector<uint8_t> index;
  {
    const WithoutGil unlocked;
    index = segments ? make_seek_index(file.data, file.size, *segments)
                     : make_seek_index(file.data, file.size);
  }
  if (index.empty()) return std::nullopt;
  return py::bytes(reinterpret_cast<const char*>(index.data()), index.size());
}

std::shared_ptr<SeekFiles> make_files(const std::vector<py::buffer>& files) {
  std::vector<SeekBytes> bytes;
  bytes.reserve(files.size());
  for (const py::buffer& file : files) bytes.push_back(bytes_in(file));
  return std::make_shared<SeekFiles>(bytes);
}

}  // namespace

void register_seek_indices(py::module_& module) {
  module.def(
      "jpeg_seek_index", &jpeg_seek_index, py::arg("data"), py::arg("segments") = py::none(),
      "The seek index of a JPEG; None: it needs none, or can have none. `segments`: a row's, "
      "whatever they take; None: as many as take a small part of the file.");
  py::class_<SeekFiles, std::shared_ptr<SeekFiles>>(
      module, "SeekFiles",
      "Files of seek indices, as bytes: mapped ones, say. They are kept, and are not to change.")
      .def(py::init(&make_files), py::arg("files"), py::keep_alive<1, 2>())
      .def("__len__", &SeekFiles::count);
}

}  // namespace fastloader::bindings
