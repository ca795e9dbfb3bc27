#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "backend/host/host_backend.h"
#include "backend/registry.h"
#include "base/error.h"
#include "check.h"

namespace fastloader::testing {

inline Backend& open_or_skip(const char* name) {
  try {
    return open_backend(name);
  } catch (const BackendUnavailable& why) {
    throw Skip{why.what()};
  }
}

using Bytes = std::vector<uint8_t>;

/// Bytes that differ between seeds and along the way.
inline Bytes pattern(size_t count, unsigned seed) {
  Bytes bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<uint8_t>(i * 31 + i / 251 + seed * 97);
  return bytes;
}

inline void upload(Stream& stream, void* device, const Bytes& bytes) {
  stream.copy_h2d_async(device, bytes.data(), bytes.size());
  stream.synchronize();
}

inline Bytes download(Stream& stream, const void* device, size_t count) {
  Bytes bytes(count, 0xEE);
  stream.copy_d2h_async(bytes.data(), device, count);
  stream.synchronize();
  return bytes;
}

/// Host memory for copies queued behind a closed gate: with any other, CUDA may wait for the stream
/// right in the call.
struct PinnedBytes {
  PinnedBytes(Backend& backend, size_t count)
      : block(backend.allocate_host(0, count)), size(count) {
    if (!block->pinned()) throw Skip{block->why_not_pinned()};
  }
  uint8_t* data() const { return static_cast<uint8_t*>(block->data()); }
  void fill(const Bytes& bytes) const { std::copy(bytes.begin(), bytes.end(), data()); }
  bool operator==(const Bytes& bytes) const { return Bytes(data(), data() + size) == bytes; }

  std::unique_ptr<HostBlock> block;
  size_t size;
};

}  // namespace fastloader::testing

/// BACKEND_TEST(name) { ... backend ... } is run on the twin, on the twin with delays, and on CUDA.
#define BACKEND_TEST(name)                                                 \
  static void name(::fastloader::Backend& backend);                        \
  TEST(host_##name) { name(::fastloader::testing::open_or_skip("host")); } \
  TEST(delayed_host_##name) {                                              \
    ::fastloader::HostBackendOptions options;                              \
    options.delay_seed = 7;                                                \
    options.max_delay = std::chrono::microseconds(20);                     \
    ::fastloader::HostBackend twin(options);                               \
    name(twin);                                                            \
  }                                                                        \
  TEST(cuda_##name) { name(::fastloader::testing::open_or_skip("cuda")); } \
  static void name([[maybe_unused]] ::fastloader::Backend& backend)
