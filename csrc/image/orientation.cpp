#include "image/orientation.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string_view>

namespace fastloader {
namespace {

using Bytes = std::string_view;

constexpr size_t kRgb = 3;

bool begins_with(Bytes bytes, Bytes beginning) {
  return bytes.substr(0, beginning.size()) == beginning;
}

bool contains(Bytes bytes, Bytes part) { return bytes.find(part) != Bytes::npos; }

/// Numbers of an EXIF block, which says in which order their bytes are.
class Tiff {
 public:
  Tiff(Bytes bytes, bool big_endian) : bytes_(bytes), big_endian_(big_endian) {}

  std::optional<uint32_t> number(size_t at, size_t count) const {
    if (at > bytes_.size() || count > bytes_.size() - at) return std::nullopt;
    uint32_t value = 0;
    for (size_t i = 0; i < count; ++i) {
      const size_t which = big_endian_ ? i : count - 1 - i;
      value = value << 8 | static_cast<uint8_t>(bytes_[at + which]);
    }
    return value;
  }

 private:
  Bytes bytes_;
  bool big_endian_;
};

constexpr uint32_t kOrientationTag = 0x0112;
constexpr uint32_t kShort = 3;  // a type: numbers of 16 bits
constexpr size_t kEntryBytes = 12;
constexpr uint8_t kTypeBytes[] = {1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8};  // of types 1 to 12

/// 0: the block has no such tag.
std::optional<uint8_t> orientation_in(Bytes exif) {
  const bool big_endian = begins_with(exif, Bytes("MM\0\x2a", 4));
  if (!big_endian && !begins_with(exif, Bytes("II\x2a\0", 4))) return std::nullopt;
  const Tiff tiff(exif, big_endian);
  const std::optional<uint32_t> directory = tiff.number(4, 4);
  const std::optional<uint32_t> count = directory ? tiff.number(*directory, 2) : std::nullopt;
  if (!count) return std::nullopt;
  uint8_t found = 0;
  for (size_t i = 0; i < *count; ++i) {
    const size_t entry = *directory + 2 + i * kEntryBytes;
    const std::optional<uint32_t> tag = tiff.number(entry, 2);
    const std::optional<uint32_t> type = tiff.number(entry + 2, 2);
    const std::optional<uint32_t> values = tiff.number(entry + 4, 4);
    // What lies outside of the block, Pillow passes over, or ends at.
    if (!tag || !type || !values || *type < 1 || *type > std::size(kTypeBytes)) return std::nullopt;
    const uint64_t bytes = uint64_t{*values} * kTypeBytes[*type - 1];
    const std::optional<uint32_t> place = tiff.number(entry + 8, 4);
    if (!place || (bytes > 4 && *place + bytes > exif.size())) return std::nullopt;
    if (*tag != kOrientationTag) continue;
    const std::optional<uint32_t> value = tiff.number(entry + 8, 2);
    if (found != 0 || *type != kShort || *values != 1 || !value || *value < 1 || *value > 8) {
      return std::nullopt;
    }
    found = static_cast<uint8_t>(*value);
  }
  return found;
}

std::optional<Orientation> read_jpeg(Bytes file) {
  constexpr Bytes kExif("Exif\0\0", 6);
  std::optional<Bytes> exif;
  bool xmp = false;
  size_t at = 2;
  for (;;) {
    while (at < file.size() && static_cast<uint8_t>(file[at]) != 0xff) ++at;  // as Pillow does
    while (at < file.size() && static_cast<uint8_t>(file[at]) == 0xff) ++at;
    if (at + 2 >= file.size()) return std::nullopt;
    const auto marker = static_cast<uint8_t>(file[at]);
    if (marker == 0xda) break;  // a scan
    if (marker == 0 || marker == 0x01 || (marker >= 0xd0 && marker <= 0xd9)) {
      ++at;
      continue;
    }
    const size_t size = static_cast<size_t>(static_cast<uint8_t>(file[at + 1])) << 8 |
                        static_cast<uint8_t>(file[at + 2]);
    if (size < 2 || size > file.size() - at - 1) return std::nullopt;
    const Bytes segment = file.substr(at + 3, size - 2);
    if (marker == 0xe1 && begins_with(segment, kExif)) {
      if (exif) return std::nullopt;  // Pillow puts them together
      exif = segment.substr(kExif.size());
    } else if (marker == 0xe1 && contains(segment, "tiff:Orientation")) {
      xmp = true;
    }
    at += 1 + size;
  }
  if (exif && begins_with(*exif, kExif)) exif = exif->substr(kExif.size());
  uint8_t found = 0;
  if (exif && !exif->empty()) {
    const std::optional<uint8_t> said = orientation_in(*exif);
    if (!said) return std::nullopt;
    found = *said;
  }
  if (found == 0 && xmp) return std::nullopt;
  return Orientation(found == 0 ? Orientation::kUpright : found);
}

/// Whether Pillow may look for an orientation in a text of this beginning. The keyword of a text is
/// where Pillow keeps it, and so also where it keeps the EXIF or XMP of a chunk of their own.
bool may_orient(Bytes type, Bytes text) {
  if (type != "tEXt" && type != "zTXt" && type != "iTXt") return false;
  constexpr Bytes kKeywords[] = {"exif", "xmp", "Raw profile type exif", "XML:com.adobe.xmp"};
  return std::any_of(std::begin(kKeywords), std::end(kKeywords),
                     [&](Bytes keyword) { return begins_with(text, keyword); });
}

/// EXIF may stand anywhere, and in several kinds of chunk.
std::optional<Orientation> read_png(Bytes file) {
  constexpr size_t kSignature = 8;
  constexpr size_t kAround = 12;  // length, type and checksum of a chunk
  size_t at = kSignature;
  while (at + kAround <= file.size()) {
    const std::optional<uint32_t> size = Tiff(file, true).number(at, 4);
    const Bytes type = file.substr(at + 4, 4);
    if (!size || *size > file.size() - at - kAround) return std::nullopt;
    const Bytes content = file.substr(at + 8, *size);
    if (type == "eXIf" || may_orient(type, content)) return std::nullopt;
    if (type == "IEND") break;
    at += kAround + *size;
  }
  return Orientation();
}

std::optional<Orientation> read_webp(Bytes file) {
  constexpr size_t kFlags = 20;
  constexpr uint8_t kExifOrXmp = 0x08 | 0x04;
  const bool extended = file.size() > kFlags && file.substr(12, 4) == "VP8X";
  if (extended && (static_cast<uint8_t>(file[kFlags]) & kExifOrXmp) != 0) return std::nullopt;
  return Orientation();
}

}  // namespace

ImageSize Orientation::shown(const ImageSize& stored) const {
  return transposes() ? ImageSize{stored.width, stored.height} : stored;
}

CropBox Orientation::stored(const CropBox& shown, const ImageSize& size) const {
  CropBox box = shown;
  if (transposes()) box = {shown.top, shown.left, shown.height, shown.width};
  if (mirrors_columns()) box.left = size.width - box.left - box.width;
  if (mirrors_rows()) box.top = size.height - box.top - box.height;
  return box;
}

void Orientation::turn(const uint8_t* from, const ImageSize& size, uint8_t* to) const {
  const ImageSize out = shown(size);
  for (size_t y = 0; y < out.height; ++y) {
    for (size_t x = 0; x < out.width; ++x, to += kRgb) {
      size_t column = transposes() ? y : x;
      size_t row = transposes() ? x : y;
      if (mirrors_columns()) column = size.width - 1 - column;
      if (mirrors_rows()) row = size.height - 1 - row;
      std::memcpy(to, from + (row * size.width + column) * kRgb, kRgb);
    }
  }
}

std::optional<Orientation> read_orientation(const uint8_t* data, size_t size) {
  const Bytes file(reinterpret_cast<const char*>(data), size);
  if (begins_with(file, "\xff\xd8")) return read_jpeg(file);
  if (begins_with(file, "\x89PNG")) return read_png(file);
  if (begins_with(file, "RIFF")) return read_webp(file);
  return std::nullopt;
}

}  // namespace fastloader
