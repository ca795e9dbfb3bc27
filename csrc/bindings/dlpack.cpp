#include "bindings/dlpack.h"

#include <algorithm>
#include <memory>

namespace py = pybind11;

namespace fastloader::bindings {
namespace {

constexpr const char* kFresh = "dltensor";

/// What a DLPack consumer holds; freed by its deleter, which may run without the GIL.
struct PooledTensor {
  dlpack::ManagedTensor managed{};
  BufferPool::Buffer* buffer = nullptr;
  std::array<int64_t, 4> shape{};
  std::array<int64_t, 4> strides{};

  ~PooledTensor() { BufferPool::give_back(buffer); }
};

void delete_pooled(dlpack::ManagedTensor* managed) {
  delete static_cast<PooledTensor*>(managed->manager);
}

// A capsule nobody consumed still owns its buffer; torch renames the ones it takes.
void delete_capsule(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, kFresh) == 0) return;
  auto* managed = static_cast<dlpack::ManagedTensor*>(PyCapsule_GetPointer(capsule, kFresh));
  managed->deleter(managed);
}

}  // namespace

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

std::array<int64_t, 4> nchw_strides(const std::array<int64_t, 4>& shape, Layout layout) {
  const auto [n, c, h, w] = shape;
  if (layout == Layout::kNhwc) return {c * h * w, 1, w * c, c};
  return {c * h * w, h * w, w, 1};
}

py::capsule pooled_capsule(BufferPool::Buffer* buffer, dlpack::DataType type,
                           const std::array<int64_t, 4>& shape,
                           const std::array<int64_t, 4>& strides) {
  std::unique_ptr<PooledTensor> pooled;
  try {
    pooled = std::make_unique<PooledTensor>();
  } catch (...) {
    BufferPool::give_back(buffer);
    throw;
  }
  pooled->buffer = buffer;
  pooled->shape = shape;
  pooled->strides = strides;
  dlpack::Tensor& tensor = pooled->managed.tensor;
  tensor.data = buffer->data();
  tensor.device = {dlpack::kCpu, 0};
  tensor.ndim = 4;
  tensor.dtype = type;
  tensor.shape = pooled->shape.data();
  tensor.strides = pooled->strides.data();
  pooled->managed.manager = pooled.get();
  pooled->managed.deleter = delete_pooled;
  PyObject* capsule = PyCapsule_New(&pooled->managed, kFresh, delete_capsule);
  if (capsule == nullptr) throw py::error_already_set();
  (void)pooled.release();
  return py::reinterpret_steal<py::capsule>(capsule);
}

}  // namespace fastloader::bindings
