#include <pybind11/stl.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "bindings/decoding.h"
#include "bindings/gil.h"
#include "bindings/register.h"
#include "image/jpeg/libjpeg/recode.h"
#include "image/jpeg/scans.h"
#include "image/jpeg/seek/file.h"
#include "image/jpeg/seek/index.h"
#include "image/jpeg/seek/writer.h"
#include "image/picture_decoder.h"
#include "image/resize/resizer.h"

namespace py = pybind11;

namespace fastloader::bindings {
namespace {

/// The bytes of a file that Python holds. As long as this lives, nobody can close or resize them.
/// Throws InvalidArgument for what is no run of bytes.
py::buffer_info file_in(const py::buffer& data) {
  py::buffer_info bytes = data.request();
  if (bytes.itemsize != 1 || bytes.ndim != 1 || (bytes.size > 1 && bytes.strides[0] != 1)) {
    throw InvalidArgument("a file is bytes without gaps");
  }
  return bytes;
}

// --- what a JPEG is made of ---------------------------------------------------------------------

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

void bind_jpeg_scans(py::module_& module) {
  module.def("jpeg_scans", &jpeg_scans, py::arg("data"),
             "(width, height, scans) of a JPEG, from its markers; (0, 0, 0) of anything else.");
  module.def("jpeg_as_sequential", &jpeg_as_sequential, py::arg("data"),
             "A progressive JPEG as a sequential one of the same pixels; None: leave it as it is.");
}

// --- seek indices -------------------------------------------------------------------------------

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

void bind_seek_indices(py::module_& module) {
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

// --- a picture's stages -------------------------------------------------------------------------

// The stages of a picture's way, one at a time, so that benchmarks can tell what each of them
// costs. Loaders don't come by here: the pool runs them together, row by row.

using Size = std::pair<uint32_t, uint32_t>;                      // height, width
using Box = std::tuple<uint32_t, uint32_t, uint32_t, uint32_t>;  // left, top, width, height

Size decode(PictureDecoder& decoder, const py::bytes& file, const std::optional<Box>& box,
            bool whole, bool own, uintptr_t destination) {
  const std::string_view data(file);  // the caller's reference keeps it alive
  const WithoutGil unlocked;
  JpegOptions options;
  options.check_below = whole;
  options.own = own;
  const PictureSize size =
      decoder.open(reinterpret_cast<const uint8_t*>(data.data()), data.size(), options);
  PictureRegion region{0, 0, size.width, size.height};
  if (box) region = {std::get<0>(*box), std::get<1>(*box), std::get<2>(*box), std::get<3>(*box)};
  decoder.begin(region);
  auto* out = reinterpret_cast<uint8_t*>(destination);
  const size_t row_bytes = size_t{region.width} * 3;
  for (uint32_t y = 0; y < region.height; ++y) {
    const uint8_t* row = decoder.read_row();
    if (out != nullptr) std::memcpy(out + y * row_bytes, row, row_bytes);
  }
  return {region.height, region.width};
}

void resize(Resizer& resizer, uintptr_t source, const Size& from, uintptr_t destination,
            const Size& to) {
  ResizeSpec spec;
  std::tie(spec.in_height, spec.in_width) = from;
  std::tie(spec.out_height, spec.out_width) = to;
  const WithoutGil unlocked;
  resizer.resize(spec, reinterpret_cast<const uint8_t*>(source), spec.in_row_bytes(),
                 reinterpret_cast<uint8_t*>(destination), spec.out_row_bytes());
}

void bind_image_stages(py::module_& module) {
  py::class_<PictureDecoder>(module, "PictureDecoder", "One per thread.")
      .def(py::init<>())
      .def("decode", &decode, py::arg("file"), py::kw_only(), py::arg("box") = py::none(),
           py::arg("whole") = false, py::arg("own") = true, py::arg("destination") = 0,
           "Decodes a file, or the box (left, top, width, height) of its picture, on the calling "
           "thread, and returns (height, width) of what it decoded. RGB rows without gaps go to "
           "`destination`, which has room for them; with 0 each row is dropped once it is there. "
           "`whole`: damage below the box is an error, too, as with decode=\"whole\". "
           "`own`: JPEGs by our own decoder where it can; False: all by libjpeg-turbo.");
  py::class_<Resizer>(module, "Resizer", "One per thread.")
      .def(py::init<>())
      .def("resize", &resize, py::kw_only(), py::arg("source"), py::arg("source_size"),
           py::arg("destination"), py::arg("size"),
           "Pillow's bilinear resize of RGB bytes from one address to another, on the calling "
           "thread. Sizes are (height, width); rows have no gaps.");
}

}  // namespace

void register_pictures(py::module_& module) {
  bind_jpeg_scans(module);
  bind_seek_indices(module);
  bind_image_stages(module);
}

}  // namespace fastloader::bindings
