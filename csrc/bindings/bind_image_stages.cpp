#include <pybind11/stl.h>

#include <cstring>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include "bindings/gil.h"
#include "bindings/register.h"
#include "image/picture_decoder.h"
#include "image/resize/resizer.h"

// The stages of a picture's way, one at a time, so that benchmarks can tell what each of them
// costs. Loaders don't come by here: the pool runs them together, row by row.

namespace py = pybind11;

namespace fastloader::bindings {
namespace {

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

}  // namespace

void register_image_stages(py::module_& module) {
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

}  // namespace fastloader::bindings
