#include "image/jpeg/pillow_header.h"

#include <algorithm>
#include <string_view>

namespace fastloader {
namespace {

/// Bytes rather than text; of a view, because segments are cut out of each other.
using Bytes = std::string_view;

bool begins_with(Bytes bytes, Bytes beginning) {
  return bytes.substr(0, beginning.size()) == beginning;
}

uint32_t byte(Bytes bytes, size_t at) { return static_cast<uint8_t>(bytes[at]); }

uint32_t number(Bytes bytes, size_t at, size_t count, bool big_endian) {
  uint32_t value = 0;
  for (size_t i = 0; i < count; ++i) {
    value = value << 8 | byte(bytes, at + (big_endian ? i : count - 1 - i));
  }
  return value;
}

/// Pillow walks over Photoshop's resources, and minds only numbers that are cut off.
bool resource_lacks_its_name(Bytes segment) {
  size_t at = 14;
  while (at < segment.size() && begins_with(segment.substr(at), "8BIM")) {
    at += 6;  // with the resource's number
    if (at > segment.size()) return false;
    if (at == segment.size()) return true;
    at += size_t{1} + byte(segment, at);
    at += at & 1;
    if (at + 4 > segment.size()) return false;
    at += size_t{4} + number(segment, at, 4, true);
    at += at & 1;
  }
  return false;
}

/// Pillow asks EXIF for the resolution, and takes text and bytes for a pair of numbers.
bool resolution_is_no_number(Bytes tiff) {
  constexpr size_t kEntry = 12;
  constexpr uint32_t kXResolution = 0x011a;
  constexpr uint32_t kRational = 5;
  if (tiff.size() < 8) return false;
  const bool big_endian = begins_with(tiff, "MM");
  size_t at = number(tiff, 4, 4, big_endian);
  if (at + 2 > tiff.size()) return false;
  uint32_t entries = number(tiff, at, 2, big_endian);
  for (at += 2; entries > 0 && at + kEntry <= tiff.size(); --entries, at += kEntry) {
    if (number(tiff, at, 2, big_endian) == kXResolution &&
        number(tiff, at + 2, 2, big_endian) != kRational) {
      return true;
    }
  }
  return false;
}

/// What was seen in the segments before.
struct Seen {
  bool exif = false;
};

const char* stumbling_block_in(unsigned marker, Bytes segment, Seen& seen) {
  constexpr Bytes kExif("Exif\0\0", 6);
  constexpr Bytes kProfile("ICC_PROFILE\0", 12);
  constexpr Bytes kPhotoshop("Photoshop 3.0\0", 14);
  if (marker == 0xe0 && begins_with(segment, "JFIF") && segment.size() < 7) {
    return "a JFIF segment without its version";
  }
  if (marker == 0xee && begins_with(segment, "Adobe") && segment.size() < 7) {
    return "an Adobe segment without its version";
  }
  if (marker == 0xe2 && begins_with(segment, kProfile) && segment.size() < 14) {
    return "a part of a colour profile without its number";
  }
  if (marker == 0xed && begins_with(segment, kPhotoshop) && resource_lacks_its_name(segment)) {
    return "a Photoshop resource that is cut off";
  }
  if (marker == 0xe1 && begins_with(segment, kExif)) {
    if (seen.exif) return "more than one EXIF segment";  // it joins them before it reads them
    seen.exif = true;
    segment.remove_prefix(kExif.size());
    if (begins_with(segment, kExif)) segment.remove_prefix(kExif.size());
    if (resolution_is_no_number(segment)) return "an EXIF resolution that is no fraction";
  }
  return nullptr;
}

/// Pillow expects no length behind these.
bool stands_alone(unsigned marker) {
  return marker == 0xc8 || (marker >= 0xd0 && marker <= 0xd9) || (marker >= 0xf0 && marker <= 0xfd);
}

}  // namespace

const char* stumbling_block_of_pillow(const uint8_t* data, size_t size) {
  constexpr unsigned kScan = 0xda;
  const Bytes file(reinterpret_cast<const char*>(data), size);
  Seen seen;
  size_t at = 2;
  while (at + 1 < size) {
    const unsigned marker = byte(file, at + 1);
    if (byte(file, at) != 0xff || marker == 0xff) {
      ++at;
      continue;
    }
    at += 2;
    if (marker == kScan) return nullptr;
    if (marker == 0 || stands_alone(marker)) continue;
    if (marker < 0xc0) return "a marker that it does not know";
    // What is cut off here is an error to libjpeg too, which has more to read.
    if (at + 2 > size) return nullptr;
    const size_t length = std::max<size_t>(number(file, at, 2, true), 2);
    if (length > size - at) return nullptr;
    const char* block = stumbling_block_in(marker, file.substr(at + 2, length - 2), seen);
    if (block != nullptr) return block;
    at += length;
  }
  return nullptr;
}

}  // namespace fastloader
