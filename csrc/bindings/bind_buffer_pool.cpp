#include <memory>

#include "bindings/dlpack.h"
#include "bindings/register.h"
#include "image/normalize.h"
#include "pipeline/buffer_pool.h"

namespace py = pybind11;

namespace fastloader::bindings {
namespace {

constexpr const char* kFresh = "dltensor";

/// What a DLPack consumer holds; freed by its deleter, which may run without the GIL.
struct PooledTensor {
  dlpack::ManagedTensor managed{};
  BufferPool::Buffer* buffer = nullptr;
  int64_t shape[4] = {};
  int64_t strides[4] = {};
};

void delete_pooled(dlpack::ManagedTensor* managed) {
  auto* pooled = static_cast<PooledTensor*>(managed->manager);
  BufferPool::give_back(pooled->buffer);
  delete pooled;
}

// A capsule nobody consumed still owns its buffer; torch renames the ones it takes.
void delete_capsule(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, kFresh) == 0) return;
  auto* managed = static_cast<dlpack::ManagedTensor*>(PyCapsule_GetPointer(capsule, kFresh));
  managed->deleter(managed);
}

dlpack::DataType dlpack_type(FloatType type) {
  switch (type) {
    case FloatType::kFloat16:
      return {dlpack::kFloat, 16, 1};
    case FloatType::kBFloat16:
      return {dlpack::kBfloat, 16, 1};
    case FloatType::kFloat32:
      break;
  }
  return {dlpack::kFloat, 32, 1};
}

py::capsule to_capsule(const NormalizeSpec& spec, BufferPool::Buffer* buffer) {
  auto pooled = std::make_unique<PooledTensor>();
  pooled->buffer = buffer;
  const auto n = static_cast<int64_t>(spec.batch);
  const auto c = static_cast<int64_t>(spec.channels);
  const auto h = static_cast<int64_t>(spec.height);
  const auto w = static_cast<int64_t>(spec.width);
  const bool nhwc = spec.out_layout == Layout::kNhwc;
  const int64_t shape[4] = {n, c, h, w};
  const int64_t strides[4] = {c * h * w, nhwc ? 1 : h * w, nhwc ? w * c : w, nhwc ? c : 1};
  for (int i = 0; i < 4; ++i) {
    pooled->shape[i] = shape[i];
    pooled->strides[i] = strides[i];
  }
  dlpack::Tensor& tensor = pooled->managed.tensor;
  tensor.data = buffer->data();
  tensor.device = {dlpack::kCpu, 0};
  tensor.ndim = 4;
  tensor.dtype = dlpack_type(spec.out_type);
  tensor.shape = pooled->shape;
  tensor.strides = pooled->strides;
  pooled->managed.manager = pooled.get();
  pooled->managed.deleter = delete_pooled;
  PyObject* capsule = PyCapsule_New(&pooled->managed, kFresh, delete_capsule);
  if (capsule == nullptr) throw py::error_already_set();
  (void)pooled.release();
  return py::reinterpret_steal<py::capsule>(capsule);
}

py::capsule normalized(BufferPool& pool, const NormalizeSpec& spec, uintptr_t source) {
  BufferPool::Buffer* buffer = nullptr;
  {
    const py::gil_scoped_release unlocked;
    buffer = pool.take(spec.out_bytes());
    normalize(spec, reinterpret_cast<const uint8_t*>(source), buffer->data());
  }
  try {
    return to_capsule(spec, buffer);
  } catch (...) {
    BufferPool::give_back(buffer);
    throw;
  }
}

}  // namespace

void register_buffer_pool(py::module_& module) {
  py::class_<BufferPool, std::shared_ptr<BufferPool>>(
      module, "BufferPool",
      "Host memory for CPU batches that comes back when the last tensor on it dies.")
      .def(py::init(&BufferPool::create))
      .def(
          "normalized", &normalized, py::arg("spec"), py::kw_only(), py::arg("source"),
          "Normalises the uint8 batch at address `source` into recycled memory and returns a "
          "DLPack capsule of shape (N, C, H, W). The caller keeps `source` alive until it returns.")
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
