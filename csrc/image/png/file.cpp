#include "image/png/file.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <string_view>

#include "base/error.h"
#include "image/png/inflater.h"

namespace fastloader {
namespace {

constexpr size_t kAround = 12;  // length, name and checksum of a chunk
// PngImagePlugin.MAX_TEXT_CHUNK and MAX_TEXT_MEMORY.
constexpr size_t kMostText = size_t{1} << 20;
constexpr size_t kMostTextInAll = 64 * kMostText;

/// What Pillow looks for in Image.info, where texts are kept too.
constexpr std::array<std::string_view, 7> kTakenKeys{
    "transparency", "interlace", "bbox", "default_image", "disposal", "blend", "duration"};

[[noreturn]] void leave_to_pillow(const std::string& what) {
  throw UnsupportedImage("PNG with " + what + ": Pillow decides");
}

uint32_t big_endian(const uint8_t* at) {
  return uint32_t{at[0]} << 24 | uint32_t{at[1]} << 16 | uint32_t{at[2]} << 8 | at[3];
}

struct Chunk {
  std::string_view name;
  const uint8_t* data;
  size_t size;

  bool is(const char* other) const { return name == other; }
};

bool has_right_checksum(const Chunk& chunk) {
  const auto* named = reinterpret_cast<const uint8_t*>(chunk.name.data());
  // The length of a chunk has 32 bits.
  const auto sum = crc32(crc32(0, Z_NULL, 0), named, static_cast<uInt>(chunk.size + 4));
  return sum == big_endian(chunk.data + chunk.size);
}

bool is_letter(char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); }

class Walk {
 public:
  Walk(const uint8_t* data, size_t size) : at_(data), end_(data + size) {}

  PngFile whole() {
    at_ += 8;  // the signature
    Chunk chunk = next();
    if (!chunk.is("IHDR") || chunk.size != 13) leave_to_pillow("a first chunk that is no header");
    read_header(chunk.data);
    while (!(chunk = next()).is("IDAT")) read_before(chunk);
    if (file_.header.color == PngColor::kPalette && file_.palette == nullptr) {
      leave_to_pillow("no palette");
    }
    file_.data = chunk.data - 8;
    for (; chunk.is("IDAT"); chunk = next()) file_.data_end = chunk.data + chunk.size + 4;
    // A frame of the animation before the data means that the picture itself is not in it.
    const uint64_t frames = uint64_t{frames_} + (animated_ && !framed_ ? 1 : 0);
    for (; !chunk.is("IEND"); chunk = next()) {
      if (chunk.is("fcTL") && frames > 1) break;  // Pillow reads no further
      read_ancillary(chunk);
    }
    return file_;
  }

 private:
  /// The next chunk, which is complete. The checksum of IDAT is not looked at.
  Chunk next() {
    if (static_cast<size_t>(end_ - at_) < kAround) throw DecodeError("PNG file is truncated");
    const Chunk chunk{{reinterpret_cast<const char*>(at_ + 4), 4}, at_ + 8, big_endian(at_)};
    if (!std::all_of(chunk.name.begin(), chunk.name.end(), is_letter)) {
      throw DecodeError("broken PNG file: a chunk's name is not made of letters");
    }
    if (static_cast<size_t>(end_ - at_) - kAround < chunk.size) {
      throw DecodeError("PNG file is truncated");
    }
    if (!chunk.is("IDAT") && !has_right_checksum(chunk)) {
      throw DecodeError("broken PNG file: wrong checksum in " + std::string(chunk.name));
    }
    at_ += kAround + chunk.size;
    return chunk;
  }

  void read_header(const uint8_t* data) {
    PngHeader& header = file_.header;
    header.width = big_endian(data);
    header.height = big_endian(data + 4);
    header.depth = data[8];
    header.color = static_cast<PngColor>(data[9]);
    header.interlaced = data[12] == 1;
    constexpr uint32_t kLargest = 0x7FFFFFFF;
    if (header.width == 0 || header.height == 0 || header.width > kLargest ||
        header.height > kLargest) {
      leave_to_pillow("an edge of " + std::to_string(std::max(header.width, header.height)) +
                      " pixels");
    }
    if (!is_defined(header) || data[10] != 0 || data[11] != 0 || data[12] > 1) {
      leave_to_pillow("a header that the standard does not define");
    }
  }

  static bool is_defined(const PngHeader& header) {
    const int depth = header.depth;
    switch (header.color) {
      case PngColor::kGrey:
        return depth == 1 || depth == 2 || depth == 4 || depth == 8 || depth == 16;
      case PngColor::kPalette:
        return depth == 1 || depth == 2 || depth == 4 || depth == 8;
      case PngColor::kRgb:
      case PngColor::kGreyAlpha:
      case PngColor::kRgba:
        return depth == 8 || depth == 16;
    }
    return false;
  }

  void read_before(const Chunk& chunk) {
    if (chunk.is("PLTE")) return read_palette(chunk);
    if (chunk.is("tRNS")) return read_transparency(chunk);
    if (chunk.is("acTL")) return read_animation(chunk);
    if (chunk.is("fcTL")) return read_frame(chunk);
    read_ancillary(chunk);
  }

  void read_palette(const Chunk& chunk) {
    once(palette_seen_, chunk);
    if (file_.header.color != PngColor::kPalette) return;
    if (chunk.size == 0 || chunk.size % 3 != 0 || chunk.size > 256 * 3) {
      leave_to_pillow("a palette of " + std::to_string(chunk.size) + " bytes");
    }
    file_.palette = chunk.data;
    file_.colors = chunk.size / 3;
  }

  /// It changes no pixel of the RGB picture.
  void read_transparency(const Chunk& chunk) {
    once(transparency_seen_, chunk);
    const PngColor color = file_.header.color;
    at_least(chunk, color == PngColor::kGrey ? 2 : color == PngColor::kRgb ? 6 : 0);
    if (color == PngColor::kPalette && chunk.size > 256) leave_to_pillow("more than 256 colours");
  }

  void read_animation(const Chunk& chunk) {
    once(animated_, chunk);
    at_least(chunk, 8);
    frames_ = big_endian(chunk.data);
    if (frames_ == 0 || frames_ > 0x80000000u) leave_to_pillow("an animation of no frames");
  }

  void read_frame(const Chunk& chunk) {
    once(framed_, chunk);
    at_least(chunk, 26);
    const PngHeader& header = file_.header;
    if (big_endian(chunk.data) != 0 || big_endian(chunk.data + 4) != header.width ||
        big_endian(chunk.data + 8) != header.height || big_endian(chunk.data + 12) != 0 ||
        big_endian(chunk.data + 16) != 0) {
      leave_to_pillow("a first frame that is not the whole picture");
    }
  }

  void read_ancillary(const Chunk& chunk) {
    if (chunk.name[0] < 'a') leave_to_pillow("a chunk " + std::string(chunk.name) + " here");
    for (const char* belongs_before : {"tRNS", "acTL", "fcTL", "fdAT"}) {
      if (chunk.is(belongs_before)) leave_to_pillow(std::string(belongs_before) + " here");
    }
    if (chunk.is("gAMA")) at_least(chunk, 4);
    if (chunk.is("cHRM")) at_least(chunk, 32);
    if (chunk.is("sRGB")) at_least(chunk, 1);
    if (chunk.is("pHYs")) at_least(chunk, 9);
    if (chunk.is("iCCP")) read_profile(chunk);
    if (chunk.is("tEXt") || chunk.is("zTXt") || chunk.is("iTXt")) read_text(chunk);
  }

  void read_profile(const Chunk& chunk) {
    once(profile_seen_, chunk);
    const uint8_t* end = chunk.data + chunk.size;
    const uint8_t* name_end = std::find(chunk.data, end, 0);
    if (end - name_end < 2 || name_end[1] != 0) leave_to_pillow("a profile that it cannot read");
    inflate_text(name_end + 2, end);
  }

  void read_text(const Chunk& chunk) {
    const uint8_t* end = chunk.data + chunk.size;
    const uint8_t* key_end = std::find(chunk.data, end, 0);
    const std::string_view key(reinterpret_cast<const char*>(chunk.data),
                               static_cast<size_t>(key_end - chunk.data));
    if (std::find(kTakenKeys.begin(), kTakenKeys.end(), key) != kTakenKeys.end()) {
      leave_to_pillow("a text called " + std::string(key));
    }
    count_text(chunk.size);
    if (chunk.is("tEXt") || key_end == end) return;
    if (chunk.is("zTXt")) {
      if (end - key_end < 2) return;  // no text
      if (key_end[1] != 0) leave_to_pillow("a text that it cannot read");
      return inflate_text(key_end + 2, end);
    }
    // Whether it is compressed, how, and behind two more names the text.
    if (end - key_end < 3 || key_end[1] == 0) return;
    const uint8_t* language_end = std::find(key_end + 3, end, 0);
    if (language_end == end) return;
    const uint8_t* translated_end = std::find(language_end + 1, end, 0);
    if (translated_end != end) inflate_text(translated_end + 1, end);
  }

  void inflate_text(const uint8_t* begin, const uint8_t* end) {
    const size_t most = std::min(kMostText, kMostTextInAll - text_);
    const size_t inflated = inflated_bytes(begin, static_cast<size_t>(end - begin), most);
    if (inflated >= most) leave_to_pillow("too much text");
    count_text(inflated);
  }

  void count_text(size_t bytes) {
    if (bytes >= kMostTextInAll - text_) leave_to_pillow("too much text");
    text_ += bytes;
  }

  static void once(bool& seen, const Chunk& chunk) {
    if (seen) leave_to_pillow("two chunks " + std::string(chunk.name));
    seen = true;
  }

  static void at_least(const Chunk& chunk, size_t bytes) {
    if (chunk.size < bytes) leave_to_pillow("a short " + std::string(chunk.name));
  }

  const uint8_t* at_;
  const uint8_t* const end_;
  PngFile file_;
  size_t text_ = 0;  // bytes of it, deflated and inflated
  uint32_t frames_ = 0;
  bool animated_ = false;
  bool framed_ = false;
  bool palette_seen_ = false;
  bool transparency_seen_ = false;
  bool profile_seen_ = false;
};

constexpr std::array<uint8_t, 8> kSignature{0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};

}  // namespace

unsigned PngHeader::pixel_bits() const {
  const auto bits = static_cast<unsigned>(depth);
  switch (color) {
    case PngColor::kGrey:
    case PngColor::kPalette:
      return bits;
    case PngColor::kGreyAlpha:
      return 2 * bits;
    case PngColor::kRgb:
      return 3 * bits;
    case PngColor::kRgba:
      return 4 * bits;
  }
  return bits;
}

size_t PngHeader::row_bytes(uint32_t pixels) const {
  return (size_t{pixels} * pixel_bits() + 7) / 8;
}

PngFile read_png(const uint8_t* data, size_t size) {
  if (!begins_as_png(data, size)) throw DecodeError("the file does not begin as a PNG does");
  return Walk(data, size).whole();
}

void check_png_data(const PngFile& file) {
  for (const uint8_t* at = file.data; at < file.data_end;) {
    const size_t size = big_endian(at);
    if (!has_right_checksum({{reinterpret_cast<const char*>(at + 4), 4}, at + 8, size})) {
      throw DecodeError("broken PNG file: wrong checksum in IDAT");
    }
    at += size + kAround;
  }
}

bool begins_as_png(const uint8_t* begin, size_t size) {
  return size >= kSignature.size() && std::equal(kSignature.begin(), kSignature.end(), begin);
}

}  // namespace fastloader
