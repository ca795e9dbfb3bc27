#include "image/jpeg/entropy_window.h"

#include <cstring>

namespace fastloader {
namespace {

constexpr size_t kReadAhead = 8;  // a reader's next byte is at most so far behind what it has taken

}  // namespace

void EntropyWindow::begin(const JpegEntropyKernels& kernels, const uint8_t* at,
                          const uint8_t* file_end, McuRun& run) {
  in_ = at;
  file_end_ = file_end;
  ended_ = false;
  before_ = 0;
  run.reader.begin(bytes_);
  fill(kernels, bytes_, run);
}

bool EntropyWindow::replenish(const JpegEntropyKernels& kernels, McuRun& run) {
  if (ended_) return run.reader.next <= run.low_water;
  before_ += static_cast<uint64_t>(run.reader.next - bytes_);
  const size_t kept = static_cast<size_t>(end_ - run.reader.next);
  std::memmove(bytes_, run.reader.next, kept);
  run.reader.next = bytes_;
  fill(kernels, bytes_ + kept, run);
  return true;
}

void EntropyWindow::fill(const JpegEntropyKernels& kernels, uint8_t* from, McuRun& run) {
  const Unstuffed unstuffed = kernels.unstuff(in_, file_end_, from, bytes_ + kBytes);
  in_ = unstuffed.in;
  end_ = unstuffed.out;
  ended_ = unstuffed.ended;
  if (ended_) {
    std::memset(end_, 0, kSlack);  // and not the whole window: a seek index takes one a row
    run.low_water = end_ + kReadAhead;
  } else {
    run.low_water = end_ - kMostMcuBytes - kReadAhead;
  }
}

}  // namespace fastloader
