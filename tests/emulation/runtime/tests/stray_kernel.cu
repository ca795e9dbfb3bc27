#include "stray_kernel.h"

#include <cstdint>

#include "image/host_device.h"

namespace fastloader::testing {
namespace {

struct ReadByte {
  FASTLOADER_HOST_DEVICE void operator()(unsigned char* at) const {
    const unsigned char read = *const_cast<const volatile unsigned char*>(at);
    static_cast<void>(read);
  }
};
struct WriteByte {
  FASTLOADER_HOST_DEVICE void operator()(unsigned char* at) const { *at = 1; }
};
struct WriteWord {
  FASTLOADER_HOST_DEVICE void operator()(unsigned char* at) const {
    *reinterpret_cast<uint32_t*>(at) = 1;
  }
};

template <class Access>
__global__ void stray_kernel(void* memory, size_t offset) {
  Access{}(static_cast<unsigned char*>(memory) + offset);
}

}  // namespace

cudaError_t launch_stray(Stray stray, void* memory, size_t offset, cudaStream_t stream) {
  const auto launch = [&](auto access) {
    stray_kernel<decltype(access)><<<1, 1, 0, stream>>>(memory, offset);
  };
  if (stray == Stray::kReadByte) launch(ReadByte{});
  if (stray == Stray::kWriteByte) launch(WriteByte{});
  if (stray == Stray::kWriteWord) launch(WriteWord{});
  return cudaGetLastError();
}

}  // namespace fastloader::testing
