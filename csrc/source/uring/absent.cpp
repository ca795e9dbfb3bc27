// In the place of file_queue.cpp in builds without liburing.

#include "source/uring/file_queue.h"

namespace fastloader {

struct FileQueue::Ring {};

FileQueue::FileQueue() = default;
FileQueue::~FileQueue() = default;

bool FileQueue::available() { return false; }
bool FileQueue::compiled_in() { return false; }
void FileQueue::read(const std::vector<File>& /*files*/, size_t /*most*/,
                     const Source::Told& /*told*/) {}

}  // namespace fastloader
