#include <pybind11/pybind11.h>

#include <memory>
#include <string>

#include "backend/registry.h"
#include "bindings/gil.h"
#include "bindings/register.h"
#include "image/normalize/normalize.h"

// The prefetch thread's calls on the device, one at a time, so that benchmarks can tell what each
// costs. Loaders do not use them.

namespace py = pybind11;

namespace fastloader::bindings {
namespace {

void normalize_on_device(const NormalizeSpec& spec, const std::string& backend, int device,
                         uintptr_t stream, uintptr_t source, uintptr_t destination) {
  const WithoutGil unlocked;
  const std::unique_ptr<Stream> external = open_backend(backend).wrap_external(device, stream);
  external->normalize_async(spec, reinterpret_cast<const void*>(source),
                            reinterpret_cast<void*>(destination));
  external->check();
}

}  // namespace

void register_device_stages(py::module_& module) {
  module.def("normalize_on_device", &normalize_on_device, py::arg("spec"), py::kw_only(),
             py::arg("backend"), py::arg("device"), py::arg("stream"), py::arg("source"),
             py::arg("destination"),
             "Queues the kernel that loaders run, on a stream made elsewhere (0: the legacy "
             "default stream; on the twin, the calling thread). Both addresses are the device's "
             "and multiples of 16; the caller keeps the memory until the stream is past it.");
}

}  // namespace fastloader::bindings
