#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "image/crop.h"

namespace fastloader {

/// The picture that operations work on: RGB bytes, 3 a pixel, rows without gaps. One per thread:
/// memory that a picture needed stays for the next one.
///
/// An operation either changes pixels() in place, or writes other(size) and then calls turn().
class Canvas {
 public:
  static constexpr size_t kRgb = 3;

  /// Makes room for a picture of this size, whose pixels the caller writes.
  uint8_t* begin(const ImageSize& size) {
    size_ = size;
    return at_least(front_, bytes());
  }

  uint8_t* pixels() { return front_.data(); }
  const ImageSize& size() const { return size_; }
  size_t row_bytes() const { return size_.width * kRgb; }
  size_t bytes() const { return size_.height * row_bytes(); }

  /// Room for the picture that comes out of an operation; pixels() stay as they are.
  uint8_t* other(const ImageSize& size) {
    other_size_ = size;
    return at_least(back_, size.height * size.width * kRgb);
  }
  /// What was written to other() is the picture now.
  void turn() {
    std::swap(front_, back_);
    size_ = other_size_;
  }

  /// Room for what is no picture. The next call may move it.
  uint8_t* scratch(size_t bytes) { return at_least(scratch_, bytes); }

  size_t scratch_bytes() const {
    return front_.capacity() + back_.capacity() + scratch_.capacity();
  }

 private:
  /// What may be read and written behind a picture's end, so that its last pixel, too, can be moved
  /// as 4 bytes.
  static constexpr size_t kSlack = 1;

  static uint8_t* at_least(std::vector<uint8_t>& memory, size_t bytes) {
    if (memory.size() < bytes + kSlack) memory.resize(bytes + kSlack);
    return memory.data();
  }

  std::vector<uint8_t> front_;
  std::vector<uint8_t> back_;
  std::vector<uint8_t> scratch_;
  ImageSize size_;
  ImageSize other_size_;
};

}  // namespace fastloader
