#include "image/orientation.h"

#include <cstdint>
#include <string>
#include <vector>

#include "check.h"
#include "random.h"

namespace fastloader {
namespace {

using namespace testing;
using Bytes = std::vector<uint8_t>;

Bytes random_picture(const ImageSize& size, Random& random) {
  Bytes pixels(size.width * size.height * 3);
  for (uint8_t& each : pixels) each = static_cast<uint8_t>(random.next());
  return pixels;
}

/// The part of a picture.
Bytes cut(const Bytes& pixels, const ImageSize& size, const CropBox& box) {
  Bytes part;
  for (size_t y = 0; y < box.height; ++y) {
    const auto row =
        pixels.begin() + static_cast<long>(((box.top + y) * size.width + box.left) * 3);
    part.insert(part.end(), row, row + static_cast<long>(box.width * 3));
  }
  return part;
}

/// Where EXIF says that row 0 and column 0 of what is stored are to be seen: the definition.
struct Sides {
  const char* row;
  const char* column;
};
constexpr Sides kSides[] = {{"top", "left"},     {"top", "right"},  {"bottom", "right"},
                            {"bottom", "left"},  {"left", "top"},   {"right", "top"},
                            {"right", "bottom"}, {"left", "bottom"}};

/// Where the stored pixel is shown, by that definition.
void place(const Sides& sides, size_t row, size_t column, const ImageSize& shown, size_t* y,
           size_t* x) {
  const auto go = [&](const std::string& side, size_t steps) {
    if (side == "top") *y = steps;
    if (side == "bottom") *y = shown.height - 1 - steps;
    if (side == "left") *x = steps;
    if (side == "right") *x = shown.width - 1 - steps;
  };
  go(sides.row, row);
  go(sides.column, column);
}

TEST(pictures_are_turned_as_exif_defines_it) {
  for (uint8_t exif = 1; exif <= 8; ++exif) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      Random random(seed);
      const ImageSize size{random.between(1, 9), random.between(1, 9)};
      const Bytes pixels = random_picture(size, random);
      const Orientation orientation(exif);
      const ImageSize shown = orientation.shown(size);
      Bytes turned(pixels.size());
      orientation.turn(pixels.data(), size, turned.data());
      for (size_t row = 0; row < size.height; ++row) {
        for (size_t column = 0; column < size.width; ++column) {
          size_t y = 0;
          size_t x = 0;
          place(kSides[exif - 1], row, column, shown, &y, &x);
          for (size_t c = 0; c < 3; ++c) {
            EXPECT_EQ(turned[(y * shown.width + x) * 3 + c],
                      pixels[(row * size.width + column) * 3 + c]);
          }
        }
      }
    }
  }
}

TEST(a_part_is_that_of_the_turned_picture) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    Random random(seed);
    const ImageSize size{random.between(1, 30), random.between(1, 30)};
    const Bytes pixels = random_picture(size, random);
    const Orientation orientation(static_cast<uint8_t>(random.between(1, 8)));
    const ImageSize shown = orientation.shown(size);
    Bytes whole(pixels.size());
    orientation.turn(pixels.data(), size, whole.data());
    CropBox box;
    box.width = random.between(1, static_cast<uint32_t>(shown.width));
    box.height = random.between(1, static_cast<uint32_t>(shown.height));
    box.left = random.below(static_cast<uint32_t>(shown.width - box.width + 1));
    box.top = random.below(static_cast<uint32_t>(shown.height - box.height + 1));
    const CropBox part = orientation.stored(box, size);
    const Bytes stored = cut(pixels, size, part);
    Bytes turned(stored.size());
    orientation.turn(stored.data(), {part.height, part.width}, turned.data());
    EXPECT(turned == cut(whole, shown, box));
  }
}

/// A JPEG's beginning, up to its first scan, with these segments.
Bytes jpeg_with(const std::vector<std::string>& segments) {
  Bytes file = {0xff, 0xd8};
  for (const std::string& segment : segments) {
    const size_t length = segment.size() + 2;
    file.insert(file.end(), {0xff, 0xe1, static_cast<uint8_t>(length >> 8),
                             static_cast<uint8_t>(length & 0xff)});
    file.insert(file.end(), segment.begin(), segment.end());
  }
  file.insert(file.end(), {0xff, 0xda, 0, 8, 1, 1, 0, 0, 0x3f, 0, 0});
  return file;
}

/// An EXIF block with a tag of one short number.
std::string exif_with(bool big_endian, uint8_t tag, uint8_t value) {
  using std::string_literals::operator""s;
  const char t = static_cast<char>(tag);
  const char v = static_cast<char>(value);
  if (big_endian) {
    return "Exif\0\0MM\0\x2a\0\0\0\x08\0\x01\x01"s + t + "\0\x03\0\0\0\x01\0"s + v +
           "\0\0\0\0\0\0"s;
  }
  return "Exif\0\0II\x2a\0\x08\0\0\0\x01\0"s + t + "\x01\x03\0\x01\0\0\0"s + v + "\0\0\0\0\0\0\0"s;
}

/// 0: only Pillow can tell.
int read(const Bytes& bytes) {
  const std::optional<Orientation> found = read_orientation(bytes.data(), bytes.size());
  return found ? found->exif() : 0;
}

TEST(what_jpegs_say) {
  constexpr uint8_t kTag = 0x12;
  EXPECT_EQ(read(jpeg_with({})), 1);
  for (uint8_t value = 0; value < 10; ++value) {
    const int expected = value >= 1 && value <= 8 ? value : 0;
    EXPECT_EQ(read(jpeg_with({exif_with(true, kTag, value)})), expected);
    EXPECT_EQ(read(jpeg_with({exif_with(false, kTag, value)})), expected);
    EXPECT_EQ(read(jpeg_with({"another"})), 1);
  }
  EXPECT_EQ(read(jpeg_with({exif_with(true, 0x13, 6)})), 1);
  const std::string exif = exif_with(true, kTag, 6);
  EXPECT_EQ(read(jpeg_with({exif, exif})), 0);
  EXPECT_EQ(read(jpeg_with({"http://ns.adobe.com/xap/1.0/ <tiff:Orientation>3<"})), 0);
  EXPECT_EQ(read(jpeg_with({exif, "http://ns.adobe.com/xap/1.0/ <tiff:Orientation>3<"})), 6);
}

TEST(a_cut_or_changed_block_is_within_its_bytes) {
  const std::string exif = exif_with(false, 0x12, 6);
  for (size_t length = 0; length < exif.size(); ++length) {
    const int found = read(jpeg_with({exif.substr(0, length)}));
    EXPECT(found == 0 || found == 1 || found == 6);
  }
  const Bytes file = jpeg_with({exif});
  for (size_t size = 0; size < file.size(); ++size) {
    const Bytes exact(file.begin(), file.begin() + static_cast<long>(size));
    read(exact);
  }
  for (size_t at = 0; at < file.size(); ++at) {
    for (int value = 0; value < 256; ++value) {
      Bytes changed = file;
      changed[at] = static_cast<uint8_t>(value);
      read(changed);
    }
  }
}

}  // namespace
}  // namespace fastloader

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
