#include "base/error.h"
#include "base/log.h"
#include "base/process.h"
#include "bindings/gil.h"
#include "bindings/register.h"

namespace py = pybind11;

namespace fastloader::bindings {

py::str path_text(const std::string& text) {
  PyObject* decoded =
      PyUnicode_DecodeFSDefaultAndSize(text.data(), static_cast<Py_ssize_t>(text.size()));
  if (decoded == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::str>(decoded);
}

namespace {

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

}  // namespace

void register_errors(py::module_& module) {
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

}  // namespace fastloader::bindings
