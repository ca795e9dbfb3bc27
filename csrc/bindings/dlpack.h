#pragma once

#include <cstdint>

// The C structs of DLPack 0.x, as every torch since 1.10 reads them from a capsule named
// "dltensor". Written out here because the ABI is frozen and is all we need of it.
// https://dmlc.github.io/dlpack/latest/c_api.html

namespace fastloader::bindings::dlpack {

constexpr int32_t kCpu = 1;
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
