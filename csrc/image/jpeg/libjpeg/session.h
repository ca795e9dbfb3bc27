#pragma once

#include <atomic>
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>  // jpeglib.h uses FILE and size_t without including them

#include <jpeglib.h>

namespace fastloader {

/// libjpeg's state for one decoder, its errors and its input, all in one place: plain data, so that
/// libjpeg's jumps out of the middle of itself pass no destructor.
///
/// Every call of libjpeg that can fail goes through run(). A failure is never printed; it is a
/// `false`, and `message` and `code` say why.
struct JpegSession {
  using Step = void (*)(JpegSession& session);

  enum class End : uint8_t {
    kFailed,   ///< libjpeg gave up, or the bytes ended
    kTooMany,  ///< more scans than `most_scans`
    kStopped,  ///< `stop` was set
  };

  jpeg_decompress_struct info;
  jpeg_error_mgr errors;
  jpeg_source_mgr source;
  jpeg_progress_mgr progress;  ///< called for every row of blocks
  std::jmp_buf escape;
  char message[JMSG_LENGTH_MAX];
  int code;      ///< of libjpeg's message; 0 for one of ours
  bool created;  ///< `info` holds something to destroy
  bool may_pad;  ///< when the bytes end, pretend an end marker follows
  bool starved;  ///< the bytes have ended and more were wanted
  End end_kind;  ///< why run() last said `false`
  int most_scans;
  const std::atomic<bool>* stop;

  // What steps take and give.
  JDIMENSION crop_left;
  JDIMENSION crop_width;
  JDIMENSION rows;
  JSAMPROW row;

  /// A fresh libjpeg over these bytes. Fresh, because tables of a picture would otherwise serve the
  /// next one where that lacks its own.
  bool start(const uint8_t* data, size_t size) noexcept;

  bool run(Step step) noexcept;

  void end() noexcept;
};

}  // namespace fastloader
