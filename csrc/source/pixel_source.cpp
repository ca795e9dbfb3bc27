#include "source/pixel_source.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include "base/error.h"
#include "base/mapped_memory.h"

namespace fastloader {
namespace {

constexpr size_t kRgb = 3;

/// So many equal steps through memory.
struct Steps {
  size_t count = 1;
  ptrdiff_t bytes = 0;
};

/// Rows, columns, and channels, of which a grey picture has three times the same.
using Shape = std::array<Steps, 3>;

Shape shape_of(const PixelSource::Array& array) {
  return {{{array.size.height, array.to_row},
           {array.size.width, array.to_column},
           {kRgb, array.channels == kRgb ? array.to_channel : 0}}};
}

/// Whether a picture lies as the decoder wants it.
bool is_plain(const PixelSource::Array& array) {
  return array.channels == kRgb && array.to_channel == 1 &&
         array.to_column == static_cast<ptrdiff_t>(kRgb) &&
         array.to_row == static_cast<ptrdiff_t>(array.size.width * kRgb);
}

/// Writes pixels, without gaps: of each, three channels or one.
void pack(const Shape& shape, const uint8_t* first, uint8_t* out) {
  const auto [rows, columns, channels] = shape;
  for (size_t y = 0; y < rows.count; ++y) {
    const uint8_t* in = first + static_cast<ptrdiff_t>(y) * rows.bytes;
    for (size_t x = 0; x < columns.count; ++x, in += columns.bytes) {
      *out++ = in[0];
      if (channels.count == 1) continue;
      *out++ = in[channels.bytes];
      *out++ = in[2 * channels.bytes];
    }
  }
}

/// Does the same with pixels of a mapped file. Copies all that lies between the first and the last
/// one by one call if that is not much more than the pixels are, and otherwise each row, or pixel,
/// or byte by itself. Returns false if something cannot be read.
bool pack_mapped(Shape shape, const uint8_t* first, uint8_t* out, std::vector<uint8_t>& between) {
  constexpr size_t kMuchMore = 4;
  size_t span = 1;
  size_t pixels = 1;
  ptrdiff_t below = 0;  // how far the lowest byte lies before the first
  for (const Steps& steps : shape) {
    const ptrdiff_t reach = static_cast<ptrdiff_t>(steps.count - 1) * steps.bytes;
    span += static_cast<size_t>(std::abs(reach));
    below += std::max<ptrdiff_t>(-reach, 0);
    pixels *= steps.count;
  }
  if (span <= kMuchMore * pixels) {
    between.resize(span);
    if (!copy_mapped(between.data(), first - below, span)) return false;
    pack(shape, between.data() + below, out);
    return true;
  }
  Steps& outer =
      *std::find_if(shape.begin(), shape.end(), [](const Steps& steps) { return steps.count > 1; });
  const Steps each = std::exchange(outer, Steps());
  for (size_t i = 0; i < each.count; ++i) {
    const uint8_t* part = first + static_cast<ptrdiff_t>(i) * each.bytes;
    if (!pack_mapped(shape, part, out + i * (pixels / each.count), between)) return false;
  }
  return true;
}

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
  if (array->mapped || !is_plain(*array)) return std::nullopt;
  return SampleBytes{first, array->size.height * array->size.width * kRgb};
}

void PixelSource::read(uint64_t index, std::vector<uint8_t>& bytes) const {
  const auto [array, first] = at(index);
  bytes.resize(array->size.height * array->size.width * kRgb);
  if (!array->mapped) return pack(shape_of(*array), first, bytes.data());
  std::vector<uint8_t> between;
  if (is_plain(*array) ? !copy_mapped(bytes.data(), first, bytes.size())
                       : !pack_mapped(shape_of(*array), first, bytes.data(), between)) {
    throw SourceError("cannot read " + name(index) +
                      ": the file that its array is mapped from was cut off, or its disk fails");
  }
}

}  // namespace fastloader
