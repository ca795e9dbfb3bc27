#pragma once

#include <zlib.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace fastloader {

/// Inflates what lies in the IDAT chunks of a PNG, in pieces. Keeps zlib's memory from picture to
/// picture.
class PngInflater {
 public:
  PngInflater();
  ~PngInflater();
  PngInflater(const PngInflater&) = delete;
  PngInflater& operator=(const PngInflater&) = delete;

  /// `begin` to `end`: IDAT chunks, each from its length to its checksum. They must stay.
  void start(const uint8_t* begin, const uint8_t* end, const std::atomic<bool>* stop);

  /// The next bytes. Throws DecodeError if they are damaged or there are fewer, and Stopped.
  void fill(uint8_t* out, size_t bytes);

  /// Throws DecodeError unless the data end here, with the checksum of all that came out.
  void finish();

 private:
  /// Puts what is inflated next before zlib; false if there is no more.
  bool feed();
  [[noreturn]] void fail() const;

  z_stream stream_{};
  const uint8_t* next_ = nullptr;  // the next chunk
  const uint8_t* end_ = nullptr;
  const std::atomic<bool>* stop_ = nullptr;
};

/// How many bytes come out of a zlib stream, until its end or its first error. Stops at `most`.
size_t inflated_bytes(const uint8_t* data, size_t size, size_t most);

}  // namespace fastloader
