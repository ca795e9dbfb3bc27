#include "image/jpeg/sequential_scan.h"

#include <algorithm>
#include <iterator>

#include "image/jpeg/markers.h"
#include "image/picture.h"

namespace fastloader {
namespace {

using namespace jpeg_marker;

/// Far from what a clean encoder writes, and so far from what overflows that one check for many
/// blocks is enough.
constexpr int32_t kMostPrediction = 1 << 24;

}  // namespace

JpegRefusal SequentialScan::open() {
  if (!has_jpeg_end_marker(file_.scan, static_cast<size_t>(file_.end - file_.scan))) {
    return JpegRefusal::kEnd;
  }
  run_.blocks = 0;
  for (size_t c = 0; c < file_.components; ++c) {
    const JpegComponent& component = file_.component[c];
    DcTable& dc = dc_[component.dc];
    AcTable& ac = ac_[component.ac];
    if (!builder_.make(file_.dc[component.dc], dc) || !builder_.make(file_.ac[component.ac], ac)) {
      return JpegRefusal::kDamage;
    }
    const size_t blocks = size_t{component.sampling.horizontal} * component.sampling.vertical;
    for (size_t i = 0; i < blocks; ++i) {
      McuBlock& block = run_.block[run_.blocks++];
      block.dc = &dc;
      block.ac = &ac;
      block.component = c;
      block.factor = file_.quantization[component.quantization][0];
    }
  }
  return JpegRefusal::kNone;
}

void SequentialScan::begin(const std::atomic<bool>* stop) {
  stop_ = stop;
  run_.damaged = false;
}

/// Lets a kernel take so many MCUs of the present interval.
bool SequentialScan::take(size_t (*kernel)(McuRun&, size_t), uint64_t mcus) {
  at_ += mcus;
  left_in_interval_ -= mcus;
  while (mcus > 0) {
    mcus -= kernel(run_, mcus);
    if (run_.damaged) return false;
    if (mcus > 0 && !window_.replenish(kernels_, run_)) return false;
  }
  return std::all_of(std::begin(run_.prediction), std::end(run_.prediction),
                     [](int32_t prediction) {
                       return prediction > -kMostPrediction && prediction < kMostPrediction;
                     });
}

bool SequentialScan::pass_over(uint64_t mcus) {
  while (mcus > 0) {
    check_wanted(stop_);
    const uint64_t some = std::min<uint64_t>(mcus, file_.mcus_across);
    if (!take(kernels_.skip, some)) return false;
    mcus -= some;
  }
  return true;
}

bool SequentialScan::go_to(uint64_t mcu) {
  if (file_.restart_interval != 0 && mcu / file_.restart_interval > interval_) {
    if (!jump_to_interval(mcu / file_.restart_interval)) return false;
  }
  return pass_over(mcu - at_);
}

bool SequentialScan::jump(uint64_t mcu, const SeekPlace& from, const SeekPlace* to) {
  const auto bytes = static_cast<uint64_t>(file_.end - file_.scan);
  const auto begins_in = [&](const SeekPlace& place) {
    const uint64_t byte = place.bit / kSeekByteBits;
    // What stands behind 0xff is a stuffed zero, or part of a marker.
    return byte < bytes && (byte == 0 || file_.scan[byte - 1] != 0xff);
  };
  if (!begins_in(from)) return false;
  const uint8_t* end = file_.end;
  if (to != nullptr) {
    if (!begins_in(*to) || to->bit <= from.bit) return false;
    // The byte in which the other MCU begins belongs to both, unless it begins with the byte.
    end = file_.scan + to->bit / kSeekByteBits;
    if (to->bit % kSeekByteBits != 0 && *end++ == 0xff && end < file_.end) ++end;
  }
  std::copy(std::begin(from.prediction), std::end(from.prediction), std::begin(run_.prediction));
  window_.begin(kernels_, file_.scan + from.bit / kSeekByteBits, end, run_);
  run_.reader.refill();
  run_.reader.take(from.bit % kSeekByteBits);
  at_ = mcu;
  left_in_interval_ = UINT64_MAX;
  return true;
}

bool SequentialScan::arrived(const SeekPlace& to) {
  if (!reaches_end()) return false;
  const uint64_t begun = to.bit % kSeekByteBits;
  const uint64_t left = begun == 0 ? 0 : kSeekByteBits - begun;
  return window_.bits_left(run_.reader) == static_cast<int64_t>(left) &&
         std::equal(std::begin(to.prediction), std::end(to.prediction),
                    std::begin(run_.prediction));
}

uint64_t SequentialScan::mcus_before_restart() {
  if (left_in_interval_ == 0 && !pass_restart()) return 0;
  return left_in_interval_;
}

bool SequentialScan::rest_is_clean() {
  const uint64_t mcus = uint64_t{file_.mcus_across} * file_.mcus_down;
  while (at_ < mcus) {
    const uint64_t some = mcus_before_restart();
    if (some == 0 || !pass_over(std::min(mcus - at_, some))) return false;
  }
  if (!segment_ends()) return false;
  const uint8_t* at = behind_fill(window_.at(), file_.end);
  return at != file_.end && *at == kEndOfImage;
}

bool SequentialScan::jump_to_interval(uint64_t interval) {
  const uint8_t* at = window_.at();
  for (; interval_ < interval; ++interval_, ++at) {
    at = find_next(at, file_.end);
    if (at == nullptr || *at != restart_behind(interval_)) return false;
  }
  begin_interval(at, interval);
  return true;
}

bool SequentialScan::pass_restart() {
  if (!segment_ends()) return false;
  const uint8_t* at = behind_fill(window_.at(), file_.end);
  if (at == file_.end || *at != restart_behind(interval_)) return false;
  begin_interval(at + 1, interval_ + 1);
  return true;
}

/// Whether the window has all bytes before the next marker, or before the end that it was given.
bool SequentialScan::reaches_end() {
  // A full window does not know yet that nothing follows.
  return window_.ended() || (window_.replenish(kernels_, run_) && window_.ended());
}

/// Whether no more than the bits that fill up a byte are left before the next marker.
bool SequentialScan::segment_ends() {
  if (!reaches_end()) return false;
  const int64_t left = window_.bits_left(run_.reader);
  return left >= 0 && left < 8;
}

void SequentialScan::begin_interval(const uint8_t* at, uint64_t interval) {
  interval_ = interval;
  at_ = interval * file_.restart_interval;
  left_in_interval_ = file_.restart_interval == 0 ? UINT64_MAX : file_.restart_interval;
  std::fill(std::begin(run_.prediction), std::end(run_.prediction), 0);
  window_.begin(kernels_, at, file_.end, run_);
}

}  // namespace fastloader
