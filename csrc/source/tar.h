#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace fastloader {

/// A regular file in a tar.
struct TarMember {
  uint64_t offset = 0;  ///< of its bytes in the tar
  uint64_t size = 0;
  std::string name;  ///< as the tar has it: a path, of any bytes but 0
};

/// Walks over the headers of a tar that lies in memory, in any of the formats that tar programs
/// write: ustar, GNU's and POSIX's (pax) long names and sizes, old ones. Gives its regular files in
/// their order. Links, folders and devices are passed over; the contents of files are not read.
///
/// Throws SourceError, which says at which byte, for what is no tar, for damage, for sparse files,
/// and for a tar that does not end with a block of zeros: it was cut off, or is still written.
std::vector<TarMember> read_tar(const uint8_t* data, size_t size);

}  // namespace fastloader
