#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <string>

namespace fastloader {

/// Copies memory that a file is mapped to. An instruction that reads where the file was cut off, or
/// where its disk fails, ends the process (SIGBUS). Here the system copies, and gives up there.
///
/// Copies the pieces one behind the other to `to`, changes the table while it goes, and returns how
/// many bytes it has copied: all, or those before the first that cannot be read. Throws SourceError
/// if the system gives no means to copy.
size_t copy_mapped_pieces(void* to, iovec* pieces, size_t count);

/// The same for one piece. Returns false if a part of it cannot be read.
bool copy_mapped(void* to, const void* from, size_t bytes);

/// The path of a file that is mapped to a part of this memory; empty without one. Anonymous shared
/// memory is none: nobody can cut it off by its name.
std::string mapped_file(const void* begin, size_t bytes);

}  // namespace fastloader
