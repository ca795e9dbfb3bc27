#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "image/jpeg/entropy_window.h"
#include "image/jpeg/file.h"
#include "image/jpeg/huffman.h"
#include "image/jpeg/kernels/entropy.h"
#include "image/jpeg/refusal.h"
#include "image/jpeg/seek/index.h"

namespace fastloader {

/// The MCUs of a sequential JPEG's scan, one after the other. Those before the ones that are wanted
/// are passed over. Where the file has restarts, whole intervals are. Functions return false at
/// what no clean encoder writes; only begin() makes the scan usable again.
class SequentialScan {
 public:
  /// Both must stay.
  SequentialScan(const JpegEntropyKernels& kernels, const JpegFile& file)
      : kernels_(kernels), file_(file) {}

  /// Once the file's headers have been read: makes the tables. What the headers point to must stay.
  JpegRefusal open();

  /// To be called first: forgets damage. The passing of MCUs throws Stopped once `*stop` is true.
  void begin(const std::atomic<bool>* stop);

  /// Makes the scan's first MCU the next one.
  void go_to_first() { begin_interval(file_.scan, 0); }

  /// What decode() is told about the blocks of an MCU, and where it puts them.
  McuRun& run() { return run_; }
  bool damaged() const { return run_.damaged; }
  void set_damaged() { run_.damaged = true; }

  /// Makes an MCU of this interval or a later one the next.
  bool go_to(uint64_t mcu);

  /// Makes an MCU the next one that begins at `from`. What is read ends before `to`, the beginning
  /// of another MCU; null: the scan's end.
  bool jump(uint64_t mcu, const SeekPlace& from, const SeekPlace* to);

  /// Whether the MCUs behind a jump() have ended where `to` is, with its predictions.
  bool arrived(const SeekPlace& to);

  /// The next MCU.
  uint64_t at() const { return at_; }

  /// If a restart is due, passes it. Returns how many MCUs follow without one; 0 for damage.
  uint64_t mcus_before_restart();

  /// Decodes MCUs, no more than there are before the next restart.
  bool decode(uint64_t mcus) { return take(kernels_.decode, mcus); }
  bool pass_over(uint64_t mcus);

  /// Whether bits were taken that are not there.
  bool overdrawn() const { return window_.overdrawn(run_.reader); }

  /// Goes to the scan's end. An end marker must follow, and nothing may be left before it.
  bool rest_is_clean();

  /// How many bits have been taken since begin() or the last restart, without stuffing.
  uint64_t bits_taken() const { return window_.bits_taken(run_.reader); }
  const int32_t* prediction() const { return run_.prediction; }

 private:
  bool take(size_t (*kernel)(McuRun&, size_t), uint64_t mcus);
  bool jump_to_interval(uint64_t interval);
  bool pass_restart();
  bool reaches_end();
  bool segment_ends();
  void begin_interval(const uint8_t* at, uint64_t interval);

  const JpegEntropyKernels& kernels_;
  const JpegFile& file_;
  const std::atomic<bool>* stop_ = nullptr;
  HuffmanBuilder builder_;
  /// One for each identifier, kept from picture to picture: many bring the same ones.
  DcTable dc_[kJpegTables];
  AcTable ac_[kJpegTables];
  EntropyWindow window_;
  McuRun run_;
  uint64_t at_ = 0;                // the next MCU
  uint64_t interval_ = 0;          // the one between restarts that it lies in
  uint64_t left_in_interval_ = 0;  // MCUs
};

}  // namespace fastloader
