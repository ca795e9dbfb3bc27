#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "image/crop.h"

namespace fastloader {

enum class ResizeFilter : uint8_t { kBox, kBilinear, kBicubic, kHamming, kLanczos };

/// Which pass comes first. They don't commute, since each rounds to 8 bits, and Pillow has changed
/// its mind twice; "the same pixels as Pillow" therefore means a version of it.
enum class ResizeOrder : uint8_t {
  /// From 13.0 on: the vertical pass if the height shrinks, and by more than twice as many pixels
  /// as the width, which may also grow (a portrait crop enlarged in width only, for one).
  kPillow13,
  /// 12.2 and 12.3: the vertical pass if the height shrinks and is over 100 times the width.
  kPillow12_2,
  /// Before: always the horizontal pass.
  kHorizontalFirst,
};

/// Pillow's `box` argument: the part of the image that is stretched over the output. Samples next
/// to it are still read where the filter reaches beyond it.
struct ResizeBox {
  float left = 0;
  float top = 0;
  float right = 0;
  float bottom = 0;
};

/// An 8-bit image, channels interleaved, and what shall become of it. torchvision's resized_crop
/// crops first, so that nothing outside the crop is ever read: there the input *is* the crop (its
/// size here, the address of its first pixel and the image's stride below), and `box` is absent.
///
/// The output equals, bit for bit, what upstream Pillow's Image.resize(size, filter, box) gives:
/// two passes, each rounded to 8 bits, of which one that would not change anything is left out.
/// With a `window`, only that part of the output is made, of the same pixels; flips are those of
/// the finished window.
struct ResizeSpec {
  size_t in_width = 0;
  size_t in_height = 0;
  size_t out_width = 0;
  size_t out_height = 0;
  size_t channels = 3;  // 1 or 3
  ResizeFilter filter = ResizeFilter::kBilinear;
  ResizeOrder order = ResizeOrder::kPillow13;
  bool horizontal_flip = false;
  bool vertical_flip = false;
  std::optional<ResizeBox> box;
  std::optional<CropBox> window;

  size_t in_row_bytes() const { return in_width * channels; }
  /// The part of the output that is written.
  CropBox written() const { return window.value_or(CropBox{0, 0, out_width, out_height}); }
  size_t out_row_bytes() const { return written().width * channels; }
  /// Depends on the whole sizes, not on the window.
  bool vertical_first() const {
    if (order == ResizeOrder::kHorizontalFirst || in_height <= out_height) return false;
    if (order == ResizeOrder::kPillow12_2) return in_height > 100 * in_width;
    return in_height + 2 * out_width > out_height + 2 * in_width;
  }
};

/// Largest width or height on either side: every edge of a box is then exact in float.
constexpr size_t kMaxResizeEdge = size_t{1} << 24;

/// Throws InvalidArgument unless every size is between 1 and kMaxResizeEdge, there are 1 or 3
/// channels, and box and window, if any, are not empty and lie inside the image and the output.
void validate(const ResizeSpec& spec);

struct ResizeKernels;

/// Resizes one picture after the other, each row as it comes from the decoder, and keeps what it
/// needs in between: the coefficients of the last geometry, which are computed anew only when it
/// changes, and the few rows that the vertical pass is waiting for. Memory grows to the largest
/// geometry seen; below that nothing is allocated.
///
/// One per thread: not thread-safe, and without any state shared between two of them.
class Resizer {
 public:
  /// With the best instruction set of this CPU (see dispatch.h), or the named one.
  Resizer();
  explicit Resizer(const std::string& isa);
  Resizer(Resizer&&) noexcept;
  Resizer& operator=(Resizer&&) noexcept;
  ~Resizer();

  /// Starts a picture; one that was not finished is forgotten. Output rows start `out_stride` bytes
  /// apart; nothing between or after them is written. Throws what validate() throws, and
  /// InvalidArgument when the stride is shorter than a row.
  void begin(const ResizeSpec& spec, uint8_t* out, size_t out_stride);

  /// The part of the input that the output depends on: all of it without a box or a window.
  CropBox needed() const;

  /// The next of the needed rows, from the top: its needed columns, which are read during the call
  /// only. Writes the output rows that it completes; rows after the last needed one are ignored.
  void push_row(const uint8_t* row);

  bool finished() const;

  /// begin() and all needed rows out of an image whose rows start `in_stride` bytes apart.
  void resize(const ResizeSpec& spec, const uint8_t* in, size_t in_stride, uint8_t* out,
              size_t out_stride);

  /// Memory kept.
  size_t scratch_bytes() const;

 private:
  struct State;

  void write_row(size_t out_row);
  uint8_t* out_row(size_t row) const;

  std::unique_ptr<State> state_;
};

}  // namespace fastloader
