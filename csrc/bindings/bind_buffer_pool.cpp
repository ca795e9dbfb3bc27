#include <memory>
#include <utility>

#include "bindings/dlpack.h"
#include "bindings/gil.h"
#include "bindings/register.h"
#include "image/normalize/augment.h"
#include "pipeline/buffer_pool.h"

namespace py = pybind11;

namespace fastloader::bindings {
namespace {

py::capsule capsule_of(std::shared_ptr<std::byte> memory, const NormalizeSpec& spec) {
  const std::array<int64_t, 4> shape = {
      static_cast<int64_t>(spec.batch), static_cast<int64_t>(spec.channels),
      static_cast<int64_t>(spec.height), static_cast<int64_t>(spec.width)};
  return tensor_capsule(std::move(memory), dlpack_type(spec.out_type), shape,
                        nchw_strides(shape, spec.out_layout));
}

py::capsule normalized(BufferPool& pool, const NormalizeSpec& spec, uintptr_t source) {
  std::shared_ptr<std::byte> memory;
  {
    const WithoutGil unlocked;
    memory = pool.share(spec.out_bytes());
    normalize(spec, reinterpret_cast<const uint8_t*>(source), memory.get());
  }
  return capsule_of(std::move(memory), spec);
}

py::capsule augmented(BufferPool& pool, const AugmentSpec& spec, uintptr_t source,
                      uintptr_t records) {
  std::shared_ptr<std::byte> memory;
  {
    const WithoutGil unlocked;
    memory = pool.share(spec.out_bytes());
    augment(spec, reinterpret_cast<const void*>(records), reinterpret_cast<const uint8_t*>(source),
            memory.get());
  }
  return capsule_of(std::move(memory), spec.normalize);
}

py::capsule bytes(BufferPool& pool, size_t count) {
  std::shared_ptr<std::byte> memory;
  {
    const WithoutGil unlocked;
    memory = pool.share(count);
  }
  const auto size = static_cast<int64_t>(count);
  return tensor_capsule(std::move(memory), {dlpack::kUnsigned, 8, 1}, {1, 1, 1, size},
                        {size, size, size, 1});
}

py::dict stats(const BufferPool& pool) {
  BufferPool::Stats stats;
  {
    const WithoutGil unlocked;
    stats = pool.stats();
  }
  py::dict result;
  result["made"] = stats.made;
  result["recycled"] = stats.recycled;
  result["free"] = stats.free;
  result["in_use"] = stats.in_use;
  result["bytes"] = stats.bytes;
  return result;
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
      .def("bytes", &bytes, py::arg("count"),
           "Recycled memory as a DLPack capsule of uint8, shape (1, 1, 1, count), contents "
           "undefined.")
      .def("augmented", &augmented, py::arg("spec"), py::kw_only(), py::arg("source"),
           py::arg("records"), "The same with the records of an AugmentSpec, aligned to 8 bytes.")
      .def(
          "keep",
          [](BufferPool& pool, size_t blocks) {
            const WithoutGil unlocked;
            pool.keep(blocks);
          },
          py::arg("blocks"),
          "So many free blocks are kept for the next batches; never fewer than before.")
      .def("stats", &stats);
}

}  // namespace fastloader::bindings
