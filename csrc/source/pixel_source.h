#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "source/source.h"

namespace fastloader {

/// Pictures that lie in memory as pixels: arrays, one after the other. The memory is the caller's,
/// who may change the pixels at any time, and must outlive the source. If a file is mapped there,
/// that may be cut off at any time: a picture is copied before anything looks at it.
class PixelSource final : public Source {
 public:
  /// Pictures of one size: grey ones of one channel, or RGB ones of three. A stride is the number
  /// of bytes from one picture, row, column or channel to the next, and may be negative.
  struct Array {
    const uint8_t* first = nullptr;
    uint64_t count = 0;
    PixelSize size;
    size_t channels = 0;
    ptrdiff_t to_picture = 0;
    ptrdiff_t to_row = 0;
    ptrdiff_t to_column = 0;
    ptrdiff_t to_channel = 0;
    bool mapped = false;  ///< whether a file is mapped there
  };

  /// Throws InvalidArgument for another number of channels, and for pictures without pixels.
  explicit PixelSource(std::vector<Array> arrays);

  uint64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }
  std::optional<PixelSize> pixels(uint64_t index) const override { return at(index).array->size; }
  /// Gives a picture that lies as the decoder wants it: its channels, pixels and rows without gaps.
  std::optional<SampleBytes> view(uint64_t index) const override;
  /// Copies a picture. The one channel of a grey one becomes three equal ones.
  void read(uint64_t index, std::vector<uint8_t>& bytes) const override;
  std::string name(uint64_t index) const override { return "picture " + std::to_string(index); }

 private:
  struct Picture {
    const Array* array;
    const uint8_t* first;
  };
  Picture at(uint64_t index) const;

  const std::vector<Array> arrays_;
  std::vector<uint64_t> ends_;  // of the arrays: the number of the first picture behind each
};

}  // namespace fastloader
