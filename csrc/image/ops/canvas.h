#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/error.h"
#include "image/crop.h"
#include "image/dispatch.h"
#include "image/resize/resizer.h"

namespace fastloader {

/// The picture that operations work on: RGB bytes, 3 a pixel, rows without gaps. One per thread:
/// memory that a picture needed stays for the next one.
///
/// An operation either changes pixels() in place, or writes other(size) and then calls turn().
class Canvas {
 public:
  static constexpr size_t kRgb = 3;

  /// Of the instruction set that was chosen, or of one that this machine has.
  Canvas() : Canvas(active_isa()) {}
  explicit Canvas(const Isa& isa) : isa_(&isa), resizer_(isa.name) {}

  /// What the operations run on.
  const Isa& isa() const { return *isa_; }

  /// Makes room for a picture of this size, whose pixels the caller writes. If there is no memory
  /// for it, the canvas keeps the size that it had.
  uint8_t* begin(const ImageSize& size) {
    uint8_t* pixels = at_least(front_, bytes_of(size));
    size_ = size;
    mix_.begun = false;
    return pixels;
  }

  uint8_t* pixels() { return front_.data(); }
  const uint8_t* pixels() const { return front_.data(); }
  const ImageSize& size() const { return size_; }
  size_t row_bytes() const { return size_.width * kRgb; }
  size_t bytes() const { return bytes_of(size_); }

  /// Room for the picture that comes out of an operation; pixels() stay as they are.
  uint8_t* other(const ImageSize& size) {
    uint8_t* pixels = at_least(back_, bytes_of(size));
    other_size_ = size;
    return pixels;
  }
  /// What was written to other() is the picture now.
  void turn() {
    std::swap(front_, back_);
    size_ = other_size_;
  }

  /// Room for what is no picture. The next call may move it.
  uint8_t* scratch(size_t bytes) { return at_least(scratch_, bytes); }

  /// Which Pillow's pixels a resize gives. It stays for the pictures that follow.
  ResizeOrder resize_order() const { return resize_order_; }
  void set_resize_order(ResizeOrder order) { resize_order_ = order; }

  /// Null, or what becomes true once nobody wants the picture any more: operations that take long
  /// look at it every few rows.
  void set_stop(const std::atomic<bool>* stop) { stop_ = stop; }
  void throw_if_stopped() const {
    // Relaxed: nothing else that the setter wrote is read on account of it.
    if (stop_ != nullptr && stop_->load(std::memory_order_relaxed)) {
      throw Stopped("the picture is not wanted any more");
    }
  }

  /// What a mix keeps from one operation to the next one (families.h). A new picture ends it.
  struct Mix {
    bool begun = false;
    ImageSize size;
    std::vector<uint8_t> original;
    std::vector<float> sum;
  };
  Mix& mix() { return mix_; }

  /// Keeps the coefficients of the last resize for the next one.
  Resizer& resizer() { return resizer_; }

  /// All memory that is kept for the next picture.
  size_t scratch_bytes() const {
    return front_.capacity() + back_.capacity() + scratch_.capacity() + mix_.original.capacity() +
           mix_.sum.capacity() * sizeof(float) + resizer_.scratch_bytes();
  }

 private:
  /// What may be read and written behind a picture's end, so that its last pixel, too, can be moved
  /// as 4 bytes.
  static constexpr size_t kSlack = 1;

  static size_t bytes_of(const ImageSize& size) { return size.height * size.width * kRgb; }

  static uint8_t* at_least(std::vector<uint8_t>& memory, size_t bytes) {
    if (memory.size() < bytes + kSlack) memory.resize(bytes + kSlack);
    return memory.data();
  }

  std::vector<uint8_t> front_;
  std::vector<uint8_t> back_;
  std::vector<uint8_t> scratch_;
  ImageSize size_;
  ImageSize other_size_;
  const Isa* isa_;
  const std::atomic<bool>* stop_ = nullptr;
  ResizeOrder resize_order_ = ResizeOrder::kPillow13;
  Resizer resizer_;
  Mix mix_;
};

}  // namespace fastloader
