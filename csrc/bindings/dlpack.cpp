#include "bindings/dlpack.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace py = pybind11;

namespace fastloader::bindings {
namespace {

constexpr const char* kFresh = "dltensor";

/// What a DLPack consumer holds; freed by its deleter, which may run without the GIL.
struct HeldTensor {
  dlpack::ManagedTensor managed{};
  std::shared_ptr<void> memory;
  std::array<int64_t, 4> shape{};
  std::array<int64_t, 4> strides{};
};

void delete_held(dlpack::ManagedTensor* managed) {
  delete static_cast<HeldTensor*>(managed->manager);
}

// A capsule that was not consumed still owns its memory. torch renames the ones that it takes.
void delete_capsule(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, kFresh) == 0) return;
  auto* managed = static_cast<dlpack::ManagedTensor*>(PyCapsule_GetPointer(capsule, kFresh));
  managed->deleter(managed);
}

py::capsule hold(std::shared_ptr<void> memory, dlpack::DataType type, int32_t dimensions,
                 const std::array<int64_t, 4>& shape, const std::array<int64_t, 4>& strides) {
  auto held = std::make_unique<HeldTensor>();
  held->memory = std::move(memory);
  held->shape = shape;
  held->strides = strides;
  dlpack::Tensor& tensor = held->managed.tensor;
  tensor.data = held->memory.get();
  tensor.device = {dlpack::kCpu, 0};
  tensor.ndim = dimensions;
  tensor.dtype = type;
  tensor.shape = held->shape.data();
  tensor.strides = held->strides.data();
  held->managed.manager = held.get();
  held->managed.deleter = delete_held;
  PyObject* capsule = PyCapsule_New(&held->managed, kFresh, delete_capsule);
  if (capsule == nullptr) throw py::error_already_set();
  (void)held.release();
  return py::reinterpret_steal<py::capsule>(capsule);
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

py::capsule tensor_capsule(std::shared_ptr<void> memory, dlpack::DataType type,
                           const std::array<int64_t, 4>& shape,
                           const std::array<int64_t, 4>& strides) {
  return hold(std::move(memory), type, 4, shape, strides);
}

py::capsule bytes_capsule(std::shared_ptr<void> memory, size_t size) {
  return hold(std::move(memory), {dlpack::kUnsigned, 8, 1}, 1, {static_cast<int64_t>(size)}, {1});
}

}  // namespace fastloader::bindings
