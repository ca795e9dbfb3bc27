#include <pybind11/stl.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "bindings/file_buffer.h"
#include "bindings/gil.h"
#include "bindings/mapped_seek_files.h"
#include "bindings/register.h"
#include "image/jpeg/seek/file.h"
#include "image/jpeg/seek/index.h"
#include "image/jpeg/seek/writer.h"

namespace py = pybind11;

namespace fastloader::bindings {
namespace {

SeekBytes bytes_in(const py::buffer_info& file) {
  return {static_cast<const uint8_t*>(file.ptr), static_cast<size_t>(file.size)};
}

std::optional<py::bytes> jpeg_seek_index(const py::buffer& data,
                                         const std::optional<uint32_t>& segments) {
  const py::buffer_info held = file_in(data);
  const SeekBytes file = bytes_in(held);
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

std::unique_ptr<MappedSeekFiles> make_files(const std::vector<py::buffer>& files) {
  auto made = std::make_unique<MappedSeekFiles>();
  std::vector<SeekBytes> bytes;
  for (const py::buffer& file : files) {
    made->held.push_back(file_in(file));
    bytes.push_back(bytes_in(made->held.back()));
  }
  made->files = std::make_shared<SeekFiles>(bytes);
  return made;
}

}  // namespace

void register_seek_indices(py::module_& module) {
  module.def(
      "jpeg_seek_index", &jpeg_seek_index, py::arg("data"), py::arg("segments") = py::none(),
      "The seek index of a JPEG; None: it needs none, or can have none. `segments`: a row's, "
      "whatever they take; None: as many as take a small part of the file.");
  py::class_<MappedSeekFiles>(module, "SeekFiles",
                              "Files of seek indices, as bytes: mapped ones, say. They cannot be "
                              "closed before this object goes, and are not to change.")
      .def(py::init(&make_files), py::arg("files"))
      .def("__len__", [](const MappedSeekFiles& mapped) { return mapped.files->count(); });
}

}  // namespace fastloader::bindings
