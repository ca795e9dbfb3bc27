#include <pybind11/stl.h>

#include <string>
#include <vector>

#include "backend/registry.h"
#include "base/error.h"
#include "base/log.h"
#include "base/process.h"
#include "base/trace.h"
#include "bindings/gil.h"
#include "bindings/register.h"
#include "image/dispatch.h"
#include "image/jpeg/libjpeg/decoder.h"
#include "image/jpeg/libjpeg/library.h"
#include "image/png/library.h"
#include "image/webp/library.h"
#include "source/uring/file_queue.h"

namespace py = pybind11;

namespace fastloader::bindings {

py::str path_text(const std::string& text) {
  PyObject* decoded =
      PyUnicode_DecodeFSDefaultAndSize(text.data(), static_cast<Py_ssize_t>(text.size()));
  if (decoded == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::str>(decoded);
}

namespace {

// --- errors and warnings ------------------------------------------------------------------------

// The exception types are Python's (fastloader/errors.py), so that pure-Python installs raise the
// very same ones.
void raise(const char* type, const char* what) {
  const py::object errors = py::module_::import("fastloader.errors");
  PyErr_SetObject(errors.attr(type).ptr(), path_text(what).ptr());
}

/// Pillow's exception, where there is Pillow.
void raise_refused(const char* what) {
  const py::object made =
      py::module_::import("fastloader.transforms._pillow").attr("refusal")(path_text(what));
  PyErr_SetObject(py::type::of(made).ptr(), made.ptr());
}

void translate(std::exception_ptr thrown) {
  try {
    if (thrown) std::rethrow_exception(thrown);
  } catch (const InvalidArgument& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const RefusedImage& error) {
    raise_refused(error.what());
  } catch (const Stopped& error) {
    raise("StoppedError", error.what());
  } catch (const BackendError& error) {
    raise("BackendError", error.what());
  } catch (const Error& error) {
    raise("Error", error.what());
  }
}

void bind_errors(py::module_& module) {
  py::register_local_exception_translator(translate);

  module.def("log_pending", &log_pending, "Whether native warnings wait to be drained.");
  module.def(
      "drain_log",
      [] {
        LogDrain drained;
        {
          const WithoutGil unlocked;
          drained = drain_log();
        }
        py::list messages;
        for (const std::string& message : drained.messages) messages.append(message);
        return py::make_tuple(messages, drained.dropped);
      },
      "Native warnings since the last call, and how many more were dropped.");
  module.def("set_process_exiting", &set_process_exiting,
             "From now on device objects are leaked instead of freed.");
}

// --- traces -------------------------------------------------------------------------------------

py::list stop_trace() {
  std::vector<trace::ThreadEvents> threads;
  {
    const WithoutGil unlocked;
    threads = trace::stop();
  }
  py::list result;
  for (const trace::ThreadEvents& thread : threads) {
    py::list events;
    for (const trace::Event& event : thread.events) {
      events.append(py::make_tuple(event.name, event.begin, event.end));
    }
    result.append(py::make_tuple(thread.thread, thread.name, thread.dropped, events));
  }
  return result;
}

void bind_trace(py::module_& module) {
  module.def(
      "trace_start",
      [](size_t events_per_thread) {
        const WithoutGil unlocked;
        return trace::start(events_per_thread);
      },
      py::arg("events_per_thread"),
      "Threads keep what they do from now on; the first so many events each. False: they do so "
      "already, for another trace.");
  module.def(
      "trace_stop", &stop_trace,
      "[(thread id, name, events that found no room, [(name, begin, end)])], in nanoseconds of "
      "time.perf_counter_ns().");
}

// --- what is compiled in ------------------------------------------------------------------------

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

void bind_build_info(py::module_& module) {
  module.def("build_info", &build_info, "What is compiled in and what was found; see doctor.");
  module.def("cuda_info", &cuda_info);
}

}  // namespace
}  // namespace fastloader::bindings

PYBIND11_MODULE(_native, module) {
  namespace bindings = fastloader::bindings;
  module.doc() = "Native engine of fastloader. Private: use the names in `fastloader`.";
  module.attr("__version__") = FASTLOADER_VERSION;
#ifdef FASTLOADER_TEST_HOOKS
  module.attr("__test_hooks__") = true;
#else
  module.attr("__test_hooks__") = false;
#endif
  module.attr("__libjpeg__") = fastloader::LibjpegDecoder::available();
  bindings::bind_errors(module);
  bindings::register_pixels(module);
  bindings::register_pictures(module);
  bindings::register_memory(module);
  bindings::register_prefetcher(module);
  bindings::register_sources(module);
  bindings::register_image_job(module);
  bindings::register_decode_pool(module);
  bindings::bind_trace(module);
  bindings::bind_build_info(module);
}
