#pragma once

#include <time.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "cuda_emulated.h"
#include "pipeline/batch_layout.h"

// A consumer in torch's place: it owns the streams and the device memory.

namespace fastloader::testing {

/// A call of torch's own was refused, which torch tells its user.
struct TorchFailure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// While one lives, the calling thread's calls are torch's: no fault strikes them, and afterwards
/// the device that the thread had selected is selected again. The device of the loader is thus not
/// the current one when the loader's own calls begin.
class AsTorch {
 public:
  explicit AsTorch(int device) {
    cudaGetDevice(&before_);
    cudaSetDevice(device);
  }
  ~AsTorch() { cudaSetDevice(before_); }
  AsTorch(const AsTorch&) = delete;
  AsTorch& operator=(const AsTorch&) = delete;

 private:
  const cuda_emulated::Outsider outsider_;
  int before_ = 0;
};

/// A stream of torch's. `is_default`: the legacy default stream of the device, handle 0.
class ConsumerStream {
 public:
  explicit ConsumerStream(int device, bool is_default = false) : device_(device) {
    const AsTorch torch(device_);
    if (!is_default && cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking) != cudaSuccess) {
      throw TorchFailure("torch: cudaStreamCreateWithFlags");
    }
  }
  ~ConsumerStream() {
    if (stream_ == nullptr || cuda_emulated::broken(device_) != cudaSuccess) return;
    const AsTorch torch(device_);
    cudaStreamDestroy(stream_);
  }
  ConsumerStream(const ConsumerStream&) = delete;
  ConsumerStream& operator=(const ConsumerStream&) = delete;

  uintptr_t handle() const { return reinterpret_cast<uintptr_t>(stream_); }

  /// Queues `function`, as torch queues a kernel. It never runs on a broken context.
  void run(std::function<void()> function) const {
    const AsTorch torch(device_);
    auto* held = new std::function<void()>(std::move(function));
    const auto call = [](void* data) {
      const std::unique_ptr<std::function<void()>> mine(static_cast<std::function<void()>*>(data));
      (*mine)();
    };
    if (cudaLaunchHostFunc(stream_, call, held) != cudaSuccess) delete held;
  }

  cudaError_t synchronize() const {
    const AsTorch torch(device_);
    return cudaStreamSynchronize(stream_);
  }

 private:
  const int device_;
  cudaStream_t stream_ = nullptr;
};

/// Device memory of one batch, as torch's allocator would give it. The kernels that use it in
/// torch's place are host functions, which see the bytes where they really are.
class OfferedMemory {
 public:
  static constexpr uint8_t kReused = 0x5C;

  OfferedMemory(int device, const BatchLayout& layout) : device_(device) {
    const AsTorch torch(device_);
    for (const BatchLayout::Leaf& leaf : layout.leaves()) add(leaf.out_bytes());
    add(layout.staging_bytes());
  }
  ~OfferedMemory() {
    cuda_emulated::drain();
    if (cuda_emulated::broken(device_) != cudaSuccess) return;
    const AsTorch torch(device_);
    for (const Block& block : blocks_) cudaFree(block.data);
  }
  OfferedMemory(const OfferedMemory&) = delete;
  OfferedMemory& operator=(const OfferedMemory&) = delete;

  std::vector<void*> outputs() const {
    std::vector<void*> all;
    for (size_t i = 0; i + 1 < blocks_.size(); ++i) all.push_back(blocks_[i].data);
    return all;
  }
  void* staging() const { return blocks_.back().data; }

  std::vector<uint8_t> read(size_t leaf, size_t bytes) const {
    const uint8_t* from = real(blocks_[leaf]);
    return std::vector<uint8_t>(from, from + bytes);
  }
  /// The memory has its next use.
  void reuse() const {
    for (const Block& block : blocks_) std::memset(real(block), kReused, block.bytes);
  }
  /// The last of its uses: from now on nothing else may write to it.
  void reuse_at_last() {
    reuse();
    reused_at_last_ = true;
  }
  /// Asked when all has come to rest.
  bool was_reused_at_last() const { return reused_at_last_; }
  bool still_reused() const {
    for (const Block& block : blocks_) {
      for (size_t i = 0; i < block.bytes; ++i) {
        if (real(block)[i] != kReused) return false;
      }
    }
    return true;
  }
  /// A use that takes its time. False when the memory was written meanwhile.
  bool use_slowly() const {
    reuse();
    const timespec long_kernel{0, 300000};
    nanosleep(&long_kernel, nullptr);
    return still_reused();
  }

 private:
  struct Block {
    void* data;
    size_t bytes;
  };

  static uint8_t* real(const Block& block) {
    return static_cast<uint8_t*>(cuda_emulated::real_address(block.data));
  }
  void add(size_t bytes) {
    // One more, so that an empty leaf has an address and a byte too many is seen.
    Block block{nullptr, bytes + 1};
    if (cudaMalloc(&block.data, block.bytes) != cudaSuccess) {
      throw TorchFailure("torch: cudaMalloc");
    }
    blocks_.push_back(block);
  }

  const int device_;
  std::vector<Block> blocks_;    // one per leaf, then the staging buffer
  bool reused_at_last_ = false;  // set by a host function
};

}  // namespace fastloader::testing
