#include "source/tar.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/mapped_memory.h"

namespace fastloader {
namespace {

constexpr size_t kBlock = 512;
constexpr uint64_t kMostExtended = uint64_t{16} << 20;  // a path is much shorter

/// A field of a header: POSIX.1-1988 (ustar) and before.
struct Field {
  size_t begin;
  size_t size;
};

constexpr Field kName{0, 100};
constexpr Field kSize{124, 12};
constexpr Field kChecksum{148, 8};
constexpr size_t kType = 156;
constexpr Field kMagic{257, 5};
constexpr Field kVersion{263, 2};
constexpr Field kPrefix{345, 155};

constexpr char kRegular = '0';
constexpr char kOldRegular = '\0';
constexpr char kContiguous = '7';
constexpr char kFirstWithoutData = '1';  // links, devices, folders, pipes
constexpr char kLastWithoutData = '6';
constexpr char kGnuLongName = 'L';
constexpr char kPaxOfOne = 'x';
constexpr char kPaxOfOldSolaris = 'X';
constexpr char kGnuSparse = 'S';
constexpr std::string_view kGnuSparseKeys = "GNU.sparse.";  // of a pax header

[[noreturn]] void fail(uint64_t at, const std::string& what) {
  throw SourceError("at byte " + std::to_string(at) + ": " + what);
}

/// Up to the first zero, or the field's end.
std::string_view text(const uint8_t* header, const Field& field) {
  const auto* begin = reinterpret_cast<const char*>(header + field.begin);
  return {begin, strnlen(begin, field.size)};
}

/// Octal digits between spaces and zeros, or GNU's form for large numbers: the highest bit, and
/// then the number with the highest byte first. Nothing for anything else.
std::optional<uint64_t> number(const uint8_t* header, const Field& field) {
  const uint8_t* at = header + field.begin;
  const uint8_t* const end = at + field.size;
  uint64_t value = 0;
  if (*at >= 0x80) {
    if (*at != 0x80) return std::nullopt;  // negative, or more than 64 bits
    for (++at; at < end; ++at) {
      if (value >> 56 != 0) return std::nullopt;
      value = value << 8 | *at;
    }
    return value;
  }
  while (at < end && *at == ' ') ++at;
  for (; at < end && *at >= '0' && *at <= '7'; ++at) value = value << 3 | (*at - '0');
  for (; at < end; ++at) {
    if (*at != ' ' && *at != 0) return std::nullopt;
  }
  return value;
}

bool is_zero(const uint8_t* block) {
  return std::all_of(block, block + kBlock, [](uint8_t byte) { return byte == 0; });
}

/// Old programs have added up signed bytes.
bool checksum_fits(const uint8_t* header) {
  const std::optional<uint64_t> said = number(header, kChecksum);
  int64_t plain = 0;
  int64_t with_signs = 0;
  for (size_t i = 0; i < kBlock; ++i) {
    const bool counts = i < kChecksum.begin || i >= kChecksum.begin + kChecksum.size;
    const uint8_t byte = counts ? header[i] : uint8_t{' '};
    plain += byte;
    with_signs += static_cast<int8_t>(byte);
  }
  return said &&
         (static_cast<int64_t>(*said) == plain || static_cast<int64_t>(*said) == with_signs);
}

/// GNU's headers have "ustar" as well, and times where the prefix is.
std::string name_of(const uint8_t* header) {
  std::string name(text(header, kName));
  const bool posix = text(header, kMagic) == "ustar" && header[kVersion.begin] != ' ';
  const std::string_view prefix = posix ? text(header, kPrefix) : std::string_view();
  return prefix.empty() ? name : std::string(prefix) + "/" + name;
}

/// What a pax header says about the member behind it.
struct Pax {
  std::optional<std::string> path;
  std::optional<uint64_t> size;
  bool sparse = false;
};

/// Records "LENGTH KEY=VALUE\n"; the length is that of the record. Returns false for anything else.
bool read_pax(std::string_view records, Pax& pax) {
  while (!records.empty() && records.front() != '\0') {
    size_t length = 0;
    size_t digits = 0;
    for (; digits < records.size() && records[digits] >= '0' && records[digits] <= '9'; ++digits) {
      length = length * 10 + static_cast<size_t>(records[digits] - '0');
      if (length > records.size()) return false;
    }
    if (digits == 0 || digits == records.size() || records[digits] != ' ') return false;
    if (length < digits + 2 || records[length - 1] != '\n') return false;
    const std::string_view record = records.substr(digits + 1, length - digits - 2);
    const size_t equals = record.find('=');
    if (equals == std::string_view::npos) return false;
    const std::string_view key = record.substr(0, equals);
    const std::string_view value = record.substr(equals + 1);
    if (key.substr(0, kGnuSparseKeys.size()) == kGnuSparseKeys) pax.sparse = true;
    if (key == "path") pax.path = std::string(value);
    if (key == "size") {
      uint64_t size = 0;
      for (const char digit : value) {
        if (digit < '0' || digit > '9' || size > UINT64_MAX / 16) return false;
        size = size * 10 + static_cast<uint64_t>(digit - '0');
      }
      pax.size = size;
    }
    records.remove_prefix(length);
  }
  return true;
}

}  // namespace

std::vector<TarMember> read_tar(const uint8_t* data, size_t size) {
  std::vector<TarMember> members;
  std::optional<std::string> long_name;
  Pax pax;
  uint64_t at = 0;
  std::array<uint8_t, kBlock> block;
  const auto copy = [data](uint64_t from, void* to, size_t bytes) {
    if (!copy_mapped(to, data + from, bytes)) fail(from, "the tar was cut off while it was read");
  };
  for (;;) {
    if (size - at < kBlock) {
      fail(at, "the tar was cut off, or is still written: no block of zeros ends it");
    }
    copy(at, block.data(), kBlock);
    const uint8_t* const header = block.data();
    if (is_zero(header)) return members;
    if (!checksum_fits(header)) {
      fail(at, at == 0 ? "no tar begins so" : "a header is damaged: its checksum does not fit");
    }
    const std::optional<uint64_t> said = number(header, kSize);
    if (!said) fail(at, "a header is damaged: its size is no number");
    const char type = static_cast<char>(header[kType]);
    const bool has_data = type < kFirstWithoutData || type > kLastWithoutData;
    const bool extends = type == kGnuLongName || type == kPaxOfOne || type == kPaxOfOldSolaris;
    const uint64_t bytes = !has_data ? 0 : extends ? *said : pax.size.value_or(*said);
    const uint64_t begin = at + kBlock;
    if (bytes > size - begin) {
      fail(at, "the tar was cut off, or is still written: a member of " + std::to_string(bytes) +
                   " bytes begins here, and " + std::to_string(size - begin) + " are there");
    }
    std::string content;
    if (extends) {
      if (bytes > kMostExtended) fail(at, "an extended header is damaged");
      content.resize(bytes);
      copy(begin, content.data(), bytes);
    }
    if (type == kGnuLongName) {
      long_name = content.substr(0, content.find('\0'));
    } else if (extends) {
      if (!read_pax(content, pax)) fail(at, "an extended header is damaged");
    } else {
      if (type == kGnuSparse || pax.sparse) fail(at, "sparse files are not supported");
      if (type == kRegular || type == kOldRegular || type == kContiguous) {
        std::string name = pax.path    ? std::move(*pax.path)
                           : long_name ? std::move(*long_name)
                                       : name_of(header);
        // Old programs mark folders by their names only.
        const bool folder = type == kOldRegular && !name.empty() && name.back() == '/';
        if (!folder) members.push_back({begin, bytes, std::move(name)});
      }
      long_name.reset();
      pax = Pax();
    }
    at = begin + (bytes + kBlock - 1) / kBlock * kBlock;
    if (at > size) fail(size, "the tar was cut off within the padding of its last member");
  }
}

}  // namespace fastloader
