#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "image/ops/checks.h"
#include "image/ops/copy_pixels.h"
#include "image/ops/families.h"
#include "image/ops/fill.h"

namespace fastloader {
namespace {

constexpr auto kMost = static_cast<double>(kMaxImageEdge);

enum class Border { kConstant, kEdge, kReflect, kSymmetric };

/// The part of the picture that is seen, and what surrounds it. Everything in pixels.
struct Frame {
  int64_t left = 0;  // of the first pixel that is seen
  int64_t top = 0;
  int64_t width = 0;  // of the part that is seen
  int64_t height = 0;
  int64_t pad_left = 0;
  int64_t pad_top = 0;
  ImageSize made;
};

/// Which of `count` pixels in a row (or column) continues it at a place before or behind it. np.pad
/// repeats the borders as often as it takes.
int64_t continued(Border border, int64_t place, int64_t count) {
  if (border == Border::kEdge || count == 1) return std::clamp<int64_t>(place, 0, count - 1);
  // There and back: the pixels at the ends come twice in a symmetric row, once in a reflected one.
  const int64_t period = border == Border::kSymmetric ? 2 * count : 2 * (count - 1);
  const int64_t rest = ((place % period) + period) % period;
  if (rest < count) return rest;
  return border == Border::kSymmetric ? period - 1 - rest : period - rest;
}

/// Copies the part that is seen into the middle of other(), whose border is filled.
void frame_filled(const Frame& frame, const Fill& fill, Canvas& canvas) {
  const auto width = static_cast<size_t>(std::max<int64_t>(frame.width, 0));
  const auto height = static_cast<size_t>(std::max<int64_t>(frame.height, 0));
  const auto pad_left = static_cast<size_t>(frame.pad_left);
  const auto pad_top = static_cast<size_t>(frame.pad_top);
  const size_t row_bytes = canvas.row_bytes();
  uint8_t* to = canvas.other(frame.made);
  if (width == 0 || height == 0) {
    fill_pixels(to, frame.made.height * frame.made.width, fill);
    canvas.turn();
    return;
  }
  const uint8_t* from = canvas.pixels() + static_cast<size_t>(frame.top) * row_bytes +
                        static_cast<size_t>(frame.left) * Canvas::kRgb;
  const size_t pad_right = frame.made.width - pad_left - width;
  fill_pixels(to, pad_top * frame.made.width, fill);
  to += pad_top * frame.made.width * Canvas::kRgb;
  for (size_t y = 0; y < height; ++y) {
    canvas.throw_if_stopped();
    fill_pixels(to, pad_left, fill);
    to += pad_left * Canvas::kRgb;
    std::memcpy(to, from, width * Canvas::kRgb);
    to += width * Canvas::kRgb;
    fill_pixels(to, pad_right, fill);
    to += pad_right * Canvas::kRgb;
    from += row_bytes;
  }
  fill_pixels(to, (frame.made.height - pad_top - height) * frame.made.width, fill);
  canvas.turn();
}

/// The same with a border that continues the picture.
void frame_continued(const Frame& frame, Border border, Canvas& canvas) {
  const size_t row_bytes = canvas.row_bytes();
  const size_t made_bytes = frame.made.width * Canvas::kRgb;
  const auto made_width = static_cast<int64_t>(frame.made.width);
  const auto made_height = static_cast<int64_t>(frame.made.height);
  const auto pixel = [](const uint8_t* row, int64_t x) {
    return row + static_cast<size_t>(x) * Canvas::kRgb;
  };
  uint8_t* made = canvas.other(frame.made);
  const auto made_row = [&](int64_t y) { return made + static_cast<size_t>(y) * made_bytes; };
  for (int64_t y = 0; y < frame.height; ++y) {
    canvas.throw_if_stopped();
    const uint8_t* from =
        pixel(canvas.pixels() + static_cast<size_t>(frame.top + y) * row_bytes, frame.left);
    uint8_t* to = made_row(frame.pad_top + y);
    const auto continue_row = [&](int64_t begin, int64_t end) {
      for (int64_t x = begin; x < end; ++x) {
        const int64_t other = continued(border, x - frame.pad_left, frame.width);
        copy_pixel(pixel(from, other), to + static_cast<size_t>(x) * Canvas::kRgb);
      }
    };
    continue_row(0, frame.pad_left);
    std::memcpy(to + static_cast<size_t>(frame.pad_left) * Canvas::kRgb, from,
                static_cast<size_t>(frame.width) * Canvas::kRgb);
    continue_row(frame.pad_left + frame.width, made_width);
  }
  // Rows above and below are rows that are there by now.
  const auto continue_column = [&](int64_t begin, int64_t end) {
    for (int64_t y = begin; y < end; ++y) {
      canvas.throw_if_stopped();
      const int64_t other = continued(border, y - frame.pad_top, frame.height);
      std::memcpy(made_row(y), made_row(frame.pad_top + other), made_bytes);
    }
  };
  continue_column(0, frame.pad_top);
  continue_column(frame.pad_top + frame.height, made_height);
  canvas.turn();
}

/// What is seen of a picture through an opening of this size whose corner lies at (left, top).
Frame seen_through(const ImageSize& picture, int64_t left, int64_t top, const ImageSize& opening) {
  const auto width = static_cast<int64_t>(picture.width);
  const auto height = static_cast<int64_t>(picture.height);
  Frame frame;
  frame.made = opening;
  frame.left = std::max<int64_t>(left, 0);
  frame.top = std::max<int64_t>(top, 0);
  frame.width = std::min(left + static_cast<int64_t>(opening.width), width) - frame.left;
  frame.height = std::min(top + static_cast<int64_t>(opening.height), height) - frame.top;
  frame.pad_left = frame.left - left;
  frame.pad_top = frame.top - top;
  return frame;
}

Border border_of(const std::vector<double>& pad_numbers) {
  return static_cast<Border>(static_cast<int>(pad_numbers[4]));
}

/// What pad() makes of a picture of this size.
Frame padding_frame(const std::vector<double>& numbers, const ImageSize& size) {
  int64_t edges[4];  // left, top, right, bottom
  for (size_t i = 0; i < 4; ++i) edges[i] = static_cast<int64_t>(numbers[i]);
  const auto width = static_cast<int64_t>(size.width);
  const auto height = static_cast<int64_t>(size.height);
  const ImageSize made =
      checked_size("pad", width + edges[0] + edges[2], height + edges[1] + edges[3]);
  if (border_of(numbers) == Border::kConstant) {
    return seen_through(size, -edges[0], -edges[1], made);
  }
  // The picture is cut first and what remains is continued: padding on one side cannot show what
  // was cut from it on the other.
  Frame frame;
  frame.made = made;
  frame.left = std::max<int64_t>(-edges[0], 0);
  frame.top = std::max<int64_t>(-edges[1], 0);
  frame.width = width - frame.left - std::max<int64_t>(-edges[2], 0);
  frame.height = height - frame.top - std::max<int64_t>(-edges[3], 0);
  frame.pad_left = std::max<int64_t>(edges[0], 0);
  frame.pad_top = std::max<int64_t>(edges[1], 0);
  if (frame.width < 1 || frame.height < 1) {
    throw InvalidArgument("pad: negative padding leaves nothing of the picture");
  }
  return frame;
}

}  // namespace

void check_pad(const std::vector<double>& numbers) {
  for (size_t i = 0; i < 4; ++i) check_whole("pad", "padding", numbers[i], -kMost, kMost);
  check_whole("pad", "mode", numbers[4], 0, 3);
  check_fill("pad", numbers, 5);
}

ImageSize padded_size(const std::vector<double>& numbers, const ImageSize& size) {
  return padding_frame(numbers, size).made;
}

void pad(const std::vector<double>& numbers, Canvas& canvas) {
  const Frame frame = padding_frame(numbers, canvas.size());
  const Border border = border_of(numbers);
  if (border == Border::kConstant) {
    frame_filled(frame, fill_of(numbers, 5), canvas);
  } else {
    frame_continued(frame, border, canvas);
  }
}

void check_crop(const std::vector<double>& numbers) {
  check_whole("crop", "left", numbers[0], -kMost, kMost);
  check_whole("crop", "top", numbers[1], -kMost, kMost);
  check_whole("crop", "width", numbers[2], 1, kMost);
  check_whole("crop", "height", numbers[3], 1, kMost);
  checked_size("crop", static_cast<int64_t>(numbers[2]), static_cast<int64_t>(numbers[3]));
}

ImageSize cropped_size(const std::vector<double>& numbers) {
  return {static_cast<size_t>(numbers[3]), static_cast<size_t>(numbers[2])};
}

void crop(const std::vector<double>& numbers, Canvas& canvas) {
  const Frame frame = seen_through(canvas.size(), static_cast<int64_t>(numbers[0]),
                                   static_cast<int64_t>(numbers[1]), cropped_size(numbers));
  frame_filled(frame, Fill{}, canvas);
}

void hflip(Canvas& canvas) {
  const ImageSize size = canvas.size();
  uint8_t* to = canvas.other(size);
  const uint8_t* last = canvas.pixels() + canvas.row_bytes() - Canvas::kRgb;
  for (size_t y = 0; y < size.height; ++y) {
    canvas.throw_if_stopped();
    copy_backwards_and_more(last, size.width, to);
    last += canvas.row_bytes();
    to += canvas.row_bytes();
  }
  canvas.turn();
}

void vflip(Canvas& canvas) {
  const size_t row_bytes = canvas.row_bytes();
  uint8_t* kept = canvas.scratch(row_bytes);
  uint8_t* top = canvas.pixels();
  uint8_t* bottom = top + canvas.bytes() - row_bytes;
  for (; top < bottom; top += row_bytes, bottom -= row_bytes) {
    std::memcpy(kept, top, row_bytes);
    std::memcpy(top, bottom, row_bytes);
    std::memcpy(bottom, kept, row_bytes);
  }
}

}  // namespace fastloader
