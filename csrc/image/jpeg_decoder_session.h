#pragma once

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

  jpeg_decompress_struct info;
  jpeg_error_mgr errors;
  jpeg_source_mgr source;
  std::jmp_buf escape;
  char message[JMSG_LENGTH_MAX];
  int code;      ///< of libjpeg's message; 0 for one of ours
  bool created;  ///< `info` holds something to destroy
  bool may_pad;  ///< when the bytes end, pretend an end marker follows
  bool starved;  ///< the bytes have ended and more were wanted

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
