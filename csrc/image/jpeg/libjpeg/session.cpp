#include "image/jpeg/libjpeg/session.h"

#include <cstring>
#include <limits>

namespace fastloader {
namespace {

constexpr JOCTET kEndMarker[2] = {0xff, JPEG_EOI};

JpegSession& session_of(j_common_ptr info) { return *static_cast<JpegSession*>(info->client_data); }

JpegSession& session_of(j_decompress_ptr info) {
  return *static_cast<JpegSession*>(info->client_data);
}

[[noreturn]] void on_error(j_common_ptr info) {
  JpegSession& session = session_of(info);
  session.code = session.errors.msg_code;
  session.errors.format_message(info, session.message);
  std::longjmp(session.escape, 1);
}

[[noreturn]] void give_up(JpegSession& session, JpegSession::End why) {
  session.end_kind = why;
  session.code = 0;
  session.message[0] = '\0';
  std::longjmp(session.escape, 1);
}

void on_progress(j_common_ptr info) {
  JpegSession& session = session_of(info);
  // Relaxed: this thread reads nothing else that the stopping thread wrote.
  if (session.stop != nullptr && session.stop->load(std::memory_order_relaxed)) {
    give_up(session, JpegSession::End::kStopped);
  }
  if (session.info.input_scan_number > session.most_scans) {
    give_up(session, JpegSession::End::kTooMany);
  }
}

void on_output(j_common_ptr) {}

/// Counts what libjpeg's own would print; the count is not kept from overflowing by more than its
/// type, since a warning takes at least one byte of input.
void on_message(j_common_ptr info, int level) {
  if (level < 0) ++info->err->num_warnings;
}

void on_source(j_decompress_ptr) {}

[[noreturn]] void fail_truncated(JpegSession& session) {
  session.code = 0;
  std::strcpy(session.message, "image file is truncated");
  std::longjmp(session.escape, 1);
}

/// Called when the bytes are used up. Pillow's own source suspends here, which
/// jpeg_skip_scanlines() cannot; so this one either gives up, where Pillow would find that it has
/// no more to give, or does what Pillow does on request: add one end marker, once.
boolean on_fill(j_decompress_ptr info) {
  JpegSession& session = session_of(info);
  if (session.starved || !session.may_pad) {
    session.starved = true;
    fail_truncated(session);
  }
  session.starved = true;
  session.source.next_input_byte = kEndMarker;
  session.source.bytes_in_buffer = sizeof kEndMarker;
  return TRUE;
}

/// Used to leap over marker segments, and may lead past the end of the bytes. What lies there is
/// missed only if more is wanted, which on_fill() decides; the added end marker is leapt over too,
/// as Pillow does.
void on_skip(j_decompress_ptr info, long bytes) {
  if (bytes <= 0) return;
  JpegSession& session = session_of(info);
  size_t left = static_cast<size_t>(bytes);
  while (left > session.source.bytes_in_buffer) {
    left -= session.source.bytes_in_buffer;
    session.source.bytes_in_buffer = 0;
    on_fill(info);
  }
  session.source.next_input_byte += left;
  session.source.bytes_in_buffer -= left;
}

}  // namespace

bool JpegSession::start(const uint8_t* data, size_t size) noexcept {
  end();
  std::memset(&info, 0, sizeof info);
  info.err = jpeg_std_error(&errors);
  errors.error_exit = on_error;
  errors.output_message = on_output;
  errors.emit_message = on_message;
  info.client_data = this;
  message[0] = '\0';
  code = 0;
  may_pad = false;
  starved = false;
  end_kind = End::kFailed;
  most_scans = std::numeric_limits<int>::max();
  stop = nullptr;
  progress.progress_monitor = on_progress;
  source.init_source = on_source;
  source.fill_input_buffer = on_fill;
  source.skip_input_data = on_skip;
  source.resync_to_restart = jpeg_resync_to_restart;
  source.term_source = on_source;
  source.next_input_byte = data;
  source.bytes_in_buffer = size;
  created = true;  // also when creating fails half-way: destroying a zeroed struct is allowed
  return run([](JpegSession& session) {
    jpeg_create_decompress(&session.info);
    session.info.src = &session.source;
    session.info.progress = &session.progress;
  });
}

bool JpegSession::run(Step step) noexcept {
  end_kind = End::kFailed;  // of libjpeg's own errors, which do not say so themselves
  if (setjmp(escape) != 0) return false;
  step(*this);
  return true;
}

void JpegSession::end() noexcept {
  if (!created) return;
  created = false;
  jpeg_destroy_decompress(&info);
}

}  // namespace fastloader
