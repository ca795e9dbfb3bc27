#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "random.h"
#include "source/tar.h"

// Tars made in memory, for tests and fuzzing.

namespace fastloader::testing {

constexpr size_t kTarBlock = 512;

/// Writes the checksum that belongs to a header.
inline void seal_tar_header(uint8_t* header) {
  std::memset(header + 148, ' ', 8);
  unsigned sum = 0;
  for (size_t i = 0; i < kTarBlock; ++i) sum += header[i];
  std::snprintf(reinterpret_cast<char*>(header + 148), 8, "%06o", sum & 0777777);
}

/// A tar that grows by a member at a time. It knows what is to be found in it.
class TarWriter {
 public:
  /// A header, and its bytes behind it.
  void put(const std::string& name, char type, const std::string& content,
           const std::string& prefix = "") {
    uint8_t header[kTarBlock] = {};
    std::memcpy(header, name.data(), std::min<size_t>(name.size(), 100));
    std::snprintf(reinterpret_cast<char*>(header + 100), 8, "%07o", 0644u);
    std::snprintf(reinterpret_cast<char*>(header + 124), 12, "%011zo", content.size());
    std::snprintf(reinterpret_cast<char*>(header + 136), 12, "%011o", 1234567u);
    header[156] = static_cast<uint8_t>(type);
    std::memcpy(header + 257, "ustar\00000", 8);
    std::memcpy(header + 345, prefix.data(), std::min<size_t>(prefix.size(), 155));
    seal_tar_header(header);
    headers.push_back(bytes.size());
    bytes.insert(bytes.end(), header, header + kTarBlock);
    bytes.insert(bytes.end(), content.begin(), content.end());
    bytes.resize((bytes.size() + kTarBlock - 1) / kTarBlock * kTarBlock);
  }

  /// A regular file, which a reader has to find by this name.
  void file(const std::string& name, const std::string& content, const std::string& found) {
    put(name, '0', content);
    expect(found, content);
  }

  void file(const std::string& name, const std::string& content) { file(name, content, name); }

  /// A record of a pax header.
  static std::string record(const std::string& key, const std::string& value) {
    const std::string rest = " " + key + "=" + value + "\n";
    size_t length = rest.size() + 1;
    while (std::to_string(length).size() + rest.size() != length) ++length;
    return std::to_string(length) + rest;
  }

  void expect(const std::string& name, const std::string& content) {
    const size_t padded = (content.size() + kTarBlock - 1) / kTarBlock * kTarBlock;
    members.push_back({bytes.size() - padded, content.size(), name});
  }

  void end() { bytes.resize(bytes.size() + 2 * kTarBlock); }

  std::vector<uint8_t> bytes;
  std::vector<size_t> headers;  ///< where they begin
  std::vector<TarMember> members;
};

/// Some files in any of the formats, and what is passed over.
inline TarWriter random_tar(Random& random) {
  TarWriter tar;
  for (uint32_t n = random.below(8); n > 0; --n) {
    const std::string content(random.below(1500), 'x');
    const std::string name = "folder/" + std::to_string(random.below(1000)) + ".jpg";
    const std::string longer = std::string(random.between(90, 400), 'n') + name;
    switch (random.below(6)) {
      case 0:
        tar.put("././@LongLink", 'L', longer + '\0');
        tar.file(longer.substr(0, 100), content, longer);
        break;
      case 1:
        tar.put("pax", 'x', TarWriter::record("comment", "?") + TarWriter::record("path", longer));
        tar.file(name, content, longer);
        break;
      case 2:
        tar.put(name, '5', "");  // a folder
        break;
      case 3:
        tar.put("pax", 'g', TarWriter::record("comment", "of all"));
        break;
      case 4:
        tar.put(name, '0', content, "before");
        tar.expect("before/" + name, content);
        break;
      default:
        tar.file(name, content);
    }
  }
  tar.end();
  return tar;
}

}  // namespace fastloader::testing
