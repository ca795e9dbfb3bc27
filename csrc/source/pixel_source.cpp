#include "source/pixel_source.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace fastloader {
namespace {

constexpr size_t kRgb = 3;

}  // namespace

PixelSource::PixelSource(std::vector<Array> arrays) : arrays_(std::move(arrays)) {
  for (const Array& array : arrays_) {
    if (array.channels != 1 && array.channels != kRgb) {
      throw InvalidArgument("pictures of " + std::to_string(array.channels) +
                            " channels; they have one or three");
    }
    if (array.size.height == 0 || array.size.width == 0) {
      throw InvalidArgument("pictures of " + std::to_string(array.size.width) + "x" +
                            std::to_string(array.size.height) + " pixels");
    }
    ends_.push_back(size() + array.count);
  }
}

PixelSource::Picture PixelSource::at(uint64_t index) const {
  const auto behind = std::upper_bound(ends_.begin(), ends_.end(), index);
  if (behind == ends_.end()) {
    throw InvalidArgument("picture " + std::to_string(index) + " of " + std::to_string(size()));
  }
  const Array& array = arrays_[static_cast<size_t>(behind - ends_.begin())];
  const uint64_t number = index - (*behind - array.count);
  return {&array, array.first + static_cast<ptrdiff_t>(number) * array.to_picture};
}

std::optional<SampleBytes> PixelSource::view(uint64_t index) const {
  const auto [array, first] = at(index);
  const auto [height, width] = array->size;
  const auto row = static_cast<ptrdiff_t>(width * kRgb);
  if (array->channels != kRgb || array->to_channel != 1 ||
      array->to_column != static_cast<ptrdiff_t>(kRgb) || array->to_row != row) {
    return std::nullopt;
  }
  return SampleBytes{first, height * width * kRgb};
}

void PixelSource::read(uint64_t index, std::vector<uint8_t>& bytes) const {
  const auto [array, first] = at(index);
  const auto [height, width] = array->size;
  // The three channels of a grey picture are the same one.
  const ptrdiff_t to_channel = array->channels == kRgb ? array->to_channel : 0;
  const ptrdiff_t to_column = array->to_column;
  bytes.resize(height * width * kRgb);
  uint8_t* out = bytes.data();
  for (size_t y = 0; y < height; ++y) {
    const uint8_t* in = first + static_cast<ptrdiff_t>(y) * array->to_row;
    for (size_t x = 0; x < width; ++x, in += to_column, out += kRgb) {
      out[0] = in[0];
      out[1] = in[to_channel];
      out[2] = in[2 * to_channel];
    }
  }
}

}  // namespace fastloader
