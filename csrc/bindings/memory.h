#pragma once

#include <pybind11/pybind11.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "image/normalize/normalize.h"

// The C structs of DLPack 0.x, as every torch since 1.10 reads them from a capsule named
// "dltensor". Written out here because the ABI is frozen and is all we need of it.
// https://dmlc.github.io/dlpack/latest/c_api.html

namespace fastloader::bindings::dlpack {

constexpr int32_t kCpu = 1;
constexpr uint8_t kUnsigned = 1;
constexpr uint8_t kFloat = 2;
constexpr uint8_t kBfloat = 4;

struct Device {
  int32_t type;
  int32_t id;
};

struct DataType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};

struct Tensor {
  void* data;
  Device device;
  int32_t ndim;
  DataType dtype;
  int64_t* shape;
  int64_t* strides;  // in elements
  uint64_t byte_offset;
};

struct ManagedTensor {
  Tensor tensor;
  void* manager;
  void (*deleter)(ManagedTensor*);
};

}  // namespace fastloader::bindings::dlpack

namespace fastloader::bindings {

/// A capsule that torch.from_dlpack takes as a 4-dimensional CPU tensor on `memory`, which is held
/// until the last tensor or view of it dies, or the capsule unused. Strides are in elements.
pybind11::capsule tensor_capsule(std::shared_ptr<void> memory, dlpack::DataType type,
                                 const std::array<int64_t, 4>& shape,
                                 const std::array<int64_t, 4>& strides);

/// The same as `size` uint8 elements.
pybind11::capsule bytes_capsule(std::shared_ptr<void> memory, size_t size);

/// The type of normalised elements.
dlpack::DataType dlpack_type(FloatType type);

/// Strides of a contiguous or channels_last tensor of shape (N, C, H, W).
std::array<int64_t, 4> nchw_strides(const std::array<int64_t, 4>& shape, Layout layout);

}  // namespace fastloader::bindings
