#include <pybind11/stl.h>

#include "backend/registry.h"
#include "base/error.h"
#include "bindings/gil.h"
#include "bindings/register.h"
#include "image/dispatch.h"
#include "image/jpeg/libjpeg/library.h"
#include "image/png/library.h"
#include "image/webp/library.h"
#include "source/uring/file_queue.h"

namespace py = pybind11;

namespace fastloader::bindings {
namespace {

py::dict cuda_info() {
  CudaReport report;
  {
    const WithoutGil unlocked;  // loading a driver can take a second
    report = describe_cuda();
  }
  py::list devices;
  for (const CudaReport::Device& device : report.devices) {
    py::dict entry;
    entry["name"] = device.name;
    entry["capability"] = py::make_tuple(device.major, device.minor);
    entry["total_memory"] = device.total_memory;
    devices.append(entry);
  }
  py::dict result;
  result["compiled_in"] = report.compiled_in;
  result["runtime_version"] = report.runtime_version;
  result["driver_version"] = report.driver_version;
  result["architectures"] = report.architectures;
  result["devices"] = devices;
  result["problem"] = report.problem;
  return result;
}

py::dict build_info() {
  // None: this build leaves to Pillow what our own decoder does not know.
  py::object jpeg_info = py::none();
  const JpegLibrary jpeg = describe_jpeg_library();
  if (!jpeg.runtime_text.empty()) {
    py::dict libjpeg;
    libjpeg["compiled_version"] = jpeg.compiled_version;
    libjpeg["runtime"] = jpeg.runtime_text;
    libjpeg["decoded_whole"] = jpeg.decoded_whole;
    jpeg_info = libjpeg;
  }
  // None: this build leaves the format to Pillow.
  py::object png_info = py::none();
  const PngLibrary png = describe_png_library();
  if (!png.runtime_version.empty()) {
    py::dict zlib;
    zlib["compiled_version"] = png.compiled_version;
    zlib["runtime"] = png.runtime_version;
    png_info = zlib;
  }
  py::object webp_info = py::none();
  const std::string webp = webp_library_version();
  if (!webp.empty()) {
    py::dict libwebp;
    libwebp["runtime"] = webp;
    webp_info = libwebp;
  }
  py::dict cpu;
  cpu["problem"] = "";
  try {
    cpu["isa"] = active_isa_name();
  } catch (const InvalidArgument& error) {  // a wrong FASTLOADER_FORCE_ISA must not hide the rest
    cpu["isa"] = py::none();
    cpu["problem"] = error.what();
  }
  cpu["available"] = available_isa_names();
  py::dict result;
  result["version"] = FASTLOADER_VERSION;
  result["compiler"] = __VERSION__;
  result["cpu"] = cpu;
  result["jpeg"] = jpeg_info;
  result["png"] = png_info;
  result["webp"] = webp_info;
  result["io_uring"] = FileQueue::compiled_in() ? (FileQueue::available() ? "in use" : "refused")
                                                : "not compiled in";
  result["cuda"] = cuda_info();
  return result;
}

}  // namespace

void register_build_info(py::module_& module) {
  module.def("build_info", &build_info, "What is compiled in and what was found; see doctor.");
  module.def("cuda_info", &cuda_info);
}

}  // namespace fastloader::bindings
