#include <memory>

#include "bindings/dlpack.h"
#include "bindings/register.h"
#include "image/normalize.h"
#include "pipeline/buffer_pool.h"

namespace py = pybind11;

namespace fastloader::bindings {
namespace {

py::capsule normalized(BufferPool& pool, const NormalizeSpec& spec, uintptr_t source) {
  BufferPool::Buffer* buffer = nullptr;
  {
    const py::gil_scoped_release unlocked;
    buffer = pool.take(spec.out_bytes());
    normalize(spec, reinterpret_cast<const uint8_t*>(source), buffer->data());
  }
  const std::array<int64_t, 4> shape = {
      static_cast<int64_t>(spec.batch), static_cast<int64_t>(spec.channels),
      static_cast<int64_t>(spec.height), static_cast<int64_t>(spec.width)};
  return pooled_capsule(buffer, dlpack_type(spec.out_type), shape,
                        nchw_strides(shape, spec.out_layout));
}

}  // namespace

void register_buffer_pool(py::module_& module) {
  py::class_<BufferPool, std::shared_ptr<BufferPool>>(
      module, "BufferPool",
      "Host memory for CPU batches that comes back when the last tensor on it dies.")
      .def(py::init(&BufferPool::create))
      .def("normalized", &normalized, py::arg("spec"), py::kw_only(), py::arg("source"),
           "Normalises the uint8 batch at address `source` into recycled memory and returns a "
           "DLPack capsule of shape (N, C, H, W). The caller keeps `source` alive until it "
           "returns.")
      .def("stats", [](const BufferPool& pool) {
        const BufferPool::Stats stats = pool.stats();
        py::dict result;
        result["made"] = stats.made;
        result["recycled"] = stats.recycled;
        result["free"] = stats.free;
        result["in_use"] = stats.in_use;
        result["bytes"] = stats.bytes;
        return result;
      });
}

}  // namespace fastloader::bindings
