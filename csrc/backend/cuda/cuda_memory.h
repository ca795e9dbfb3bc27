#pragma once

#include <memory>
#include <string>

#include "backend/backend.h"
#include "backend/cuda/cuda_check.h"
#include "backend/lifetime.h"
#include "base/mapping.h"

namespace fastloader {

/// Our own mapping, registered with CUDA, rather than cudaHostAlloc's: it must be absent in forked
/// children (the kernel would copy every pinned page at fork) and on the GPU's NUMA node.
class CudaHostBlock final : public HostBlock {
 public:
  CudaHostBlock(int device, size_t bytes, int numa_node);
  ~CudaHostBlock() override;

  void* data() const override { return mapping_->data(); }
  size_t bytes() const override { return mapping_->bytes(); }
  bool pinned() const override { return why_not_pinned_.empty(); }
  const std::string& why_not_pinned() const override { return why_not_pinned_; }

 private:
  const int device_;
  const Lifetime lifetime_;
  std::unique_ptr<Mapping> mapping_;
  std::string why_not_pinned_;
};

class CudaDeviceBlock final : public DeviceBlock {
 public:
  CudaDeviceBlock(int device, size_t bytes);
  ~CudaDeviceBlock() override;

  void* data() const override { return data_; }
  size_t bytes() const override { return bytes_; }
  int device() const override { return device_; }

 private:
  const int device_;
  const size_t bytes_;
  const Lifetime lifetime_;
  void* data_ = nullptr;
};

}  // namespace fastloader
