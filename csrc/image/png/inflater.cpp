#include "image/png/inflater.h"

#include <algorithm>
#include <array>
#include <new>
#include <string>

#include "base/error.h"
#include "image/picture.h"

namespace fastloader {
namespace {

/// Between two looks at `stop`: less than a hundredth of a second.
constexpr size_t kPiece = size_t{1} << 20;

void begin(z_stream& stream) {
  if (inflateInit(&stream) != Z_OK) throw std::bad_alloc();
}

}  // namespace

PngInflater::PngInflater() { begin(stream_); }

PngInflater::~PngInflater() { inflateEnd(&stream_); }

void PngInflater::start(const uint8_t* begin, const uint8_t* end, const std::atomic<bool>* stop) {
  inflateReset(&stream_);
  stream_.avail_in = 0;
  next_ = begin;
  end_ = end;
  stop_ = stop;
}

bool PngInflater::feed() {
  while (stream_.avail_in == 0) {
    if (next_ == end_) return false;
    const uint32_t size =
        uint32_t{next_[0]} << 24 | uint32_t{next_[1]} << 16 | uint32_t{next_[2]} << 8 | next_[3];
    stream_.next_in = const_cast<Bytef*>(next_ + 8);
    stream_.avail_in = size;
    next_ += size_t{size} + 12;
  }
  return true;
}

void PngInflater::fail() const {
  throw DecodeError(std::string("broken PNG file: ") +
                    (stream_.msg != nullptr ? stream_.msg : "its data end too early"));
}

void PngInflater::fill(uint8_t* out, size_t bytes) {
  while (bytes > 0) {
    check_wanted(stop_);
    const size_t piece = std::min(bytes, kPiece);
    stream_.next_out = out;
    stream_.avail_out = static_cast<uInt>(piece);
    while (stream_.avail_out > 0) {
      if (!feed()) fail();
      const int status = inflate(&stream_, Z_NO_FLUSH);
      if (status == Z_MEM_ERROR) throw std::bad_alloc();
      // At the end of the stream nothing may be missing; finish() finds the end then once more.
      if (status != Z_OK && !(status == Z_STREAM_END && stream_.avail_out == 0)) fail();
    }
    out += piece;
    bytes -= piece;
  }
}

void PngInflater::finish() {
  std::array<uint8_t, 1> more;
  for (;;) {
    stream_.next_out = more.data();
    stream_.avail_out = more.size();
    feed();
    const int status = inflate(&stream_, Z_NO_FLUSH);
    if (stream_.avail_out == 0) throw DecodeError("broken PNG file: too much data");
    if (status == Z_STREAM_END) return;
    if (status != Z_OK) fail();
  }
}

size_t inflated_bytes(const uint8_t* data, size_t size, size_t most) {
  z_stream stream{};
  begin(stream);
  stream.next_in = const_cast<Bytef*>(data);
  stream.avail_in = static_cast<uInt>(size);  // of one chunk, whose length has 32 bits
  std::array<uint8_t, 16384> out;
  size_t inflated = 0;
  int status = Z_OK;
  while (status == Z_OK && inflated < most) {
    stream.next_out = out.data();
    stream.avail_out = out.size();
    status = inflate(&stream, Z_NO_FLUSH);
    inflated += out.size() - stream.avail_out;
  }
  inflateEnd(&stream);
  return inflated;
}

}  // namespace fastloader
