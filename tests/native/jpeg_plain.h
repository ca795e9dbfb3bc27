#pragma once

#include <algorithm>
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>  // jpeglib.h uses FILE and size_t without including them
#include <cstring>
#include <vector>

#include <jpeglib.h>

// The oracle: a whole decode by libjpeg with nothing clever in it, fed the way Pillow feeds it. The
// source suspends when the bytes end; what is not there then is truncated. It shares no code with
// the decoder under test.

namespace fastloader::testing {

class PlainJpeg {
 public:
  enum class End : uint8_t {
    kFine,
    kError,      ///< libjpeg gave up
    kTruncated,  ///< the bytes ended before the last row
    kRefused,    ///< more pixels, or more scans times pixels, than the limit
  };

  PlainJpeg(const uint8_t* data, size_t size, bool pad, uint64_t pixel_limit, int denominator = 1,
            uint64_t work_limit = UINT64_MAX)
      : pad_(pad), pixel_limit_(pixel_limit), work_limit_(work_limit), denominator_(denominator) {
    state_.info.err = jpeg_std_error(&state_.errors);
    state_.errors.error_exit = [](j_common_ptr info) {
      std::longjmp(static_cast<State*>(info->client_data)->escape, 1);
    };
    state_.errors.emit_message = [](j_common_ptr info, int level) {
      if (level < 0) ++info->err->num_warnings;
    };
    state_.info.client_data = &state_;
    state_.progress.progress_monitor = [](j_common_ptr info) {
      State& state = *static_cast<State*>(info->client_data);
      if (state.info.input_scan_number <= state.most_scans) return;
      state.too_many = true;
      std::longjmp(state.escape, 1);
    };
    state_.source.init_source = [](j_decompress_ptr) {};
    state_.source.term_source = [](j_decompress_ptr) {};
    state_.source.resync_to_restart = jpeg_resync_to_restart;
    state_.source.fill_input_buffer = [](j_decompress_ptr) -> boolean { return FALSE; };
    state_.source.skip_input_data = [](j_decompress_ptr info, long bytes) {
      if (bytes > 0) static_cast<State*>(info->client_data)->skip(static_cast<size_t>(bytes));
    };
    state_.source.next_input_byte = data;
    state_.source.bytes_in_buffer = size;
    end_ = decode();
    scans = static_cast<uint32_t>(state_.info.input_scan_number);
    // Of a picture with one it reads the header of another, and gives up there.
    if (!several_scans_) scans = std::min(scans, 1u);
    jpeg_destroy_decompress(&state_.info);
  }
  PlainJpeg(const PlainJpeg&) = delete;
  PlainJpeg& operator=(const PlainJpeg&) = delete;

  uint32_t width = 0;
  uint32_t height = 0;
  int components = 0;
  uint32_t rows = 0;            ///< that came out before the picture ended or failed
  std::vector<uint8_t> rgb;     ///< of all rows; missing ones as Pillow leaves them
  bool padded = false;          ///< the bytes ended somewhere, and an end marker was put there
  bool finished = false;        ///< the end marker was reached without an error
  bool has_end_marker = false;  ///< somewhere after the first scan's header
  uint32_t scans = 0;           ///< that libjpeg has begun

  End end() const { return end_; }
  int denominator() const { return denominator_; }
  long warnings() const { return state_.errors.num_warnings; }
  const char* message() const { return message_; }
  const uint8_t* pixel(uint32_t x, uint32_t y) const {
    return rgb.data() + (size_t{y} * width + x) * 3;
  }

 private:
  // Plain data, since libjpeg jumps over it.
  struct State {
    jpeg_decompress_struct info;
    jpeg_error_mgr errors;
    jpeg_source_mgr source;
    std::jmp_buf escape;
    jpeg_progress_mgr progress;
    int64_t most_scans;
    bool too_many;
    size_t owed;  // bytes still to be skipped when more come
    JSAMPROW row;
    int result;

    void skip(size_t bytes) {
      const size_t now = bytes < source.bytes_in_buffer ? bytes : source.bytes_in_buffer;
      source.next_input_byte += now;
      source.bytes_in_buffer -= now;
      owed = bytes - now;
    }
  };
  enum class Outcome : uint8_t { kDone, kSuspended, kFailed };

  using Step = int (*)(State& state);  // 0 for suspended

  static bool run_once(State& state, Step step) {
    if (setjmp(state.escape) != 0) return false;
    state.result = step(state);
    return true;
  }

  Outcome run(Step step) {
    while (run_once(state_, step)) {
      if (state_.result != 0) return Outcome::kDone;
      if (!pad_ || padded) return Outcome::kSuspended;
      padded = true;
      rest_.assign(state_.source.next_input_byte,
                   state_.source.next_input_byte + state_.source.bytes_in_buffer);
      rest_.push_back(0xff);
      rest_.push_back(JPEG_EOI);
      state_.source.next_input_byte = rest_.data();
      state_.source.bytes_in_buffer = rest_.size();
      if (state_.owed > 0) state_.skip(state_.owed);
    }
    state_.errors.format_message(reinterpret_cast<j_common_ptr>(&state_.info), message_);
    return Outcome::kFailed;
  }

  End end_of(Outcome outcome) const {
    if (state_.too_many) return End::kRefused;
    if (outcome == Outcome::kSuspended) return End::kTruncated;
    return outcome == Outcome::kDone ? End::kFine : End::kError;
  }

  End decode() {
    Outcome outcome = run([](State& s) {
      jpeg_source_mgr* source = &s.source;
      jpeg_create_decompress(&s.info);
      s.info.src = source;
      return 1;
    });
    if (outcome == Outcome::kDone) {
      const bool pad = pad_;
      pad_ = false;  // Pillow's own parser has to get through the header first
      outcome = run([](State& s) {
        int got = JPEG_HEADER_TABLES_ONLY;
        while (got == JPEG_HEADER_TABLES_ONLY) got = jpeg_read_header(&s.info, FALSE);
        return got == JPEG_SUSPENDED ? 0 : 1;
      });
      pad_ = pad;
    }
    if (outcome != Outcome::kDone) return end_of(outcome);
    several_scans_ = jpeg_has_multiple_scans(&state_.info) != FALSE;  // fails in no state like this
    const uint8_t* rest = state_.source.next_input_byte;
    const uint8_t end_marker[2] = {0xff, JPEG_EOI};
    has_end_marker = std::search(rest, rest + state_.source.bytes_in_buffer, end_marker,
                                 end_marker + 2) != rest + state_.source.bytes_in_buffer;
    components = state_.info.num_components;
    const uint64_t pixels = uint64_t{state_.info.image_width} * state_.info.image_height;
    // Of more pixels than the second not even one scan is affordable.
    if (pixels > pixel_limit_ || pixels > work_limit_) return End::kRefused;
    const uint64_t affordable = work_limit_ / std::max<uint64_t>(pixels, 1);
    state_.most_scans = static_cast<int64_t>(std::min<uint64_t>(affordable, 100));
    state_.info.progress = &state_.progress;
    state_.info.out_color_space = components == 4 ? JCS_CMYK : JCS_RGB;
    state_.info.scale_num = 1;
    state_.info.scale_denom = static_cast<unsigned>(denominator_);
    outcome = run([](State& s) -> int { return jpeg_start_decompress(&s.info); });
    if (outcome != Outcome::kDone) return end_of(outcome);
    width = state_.info.output_width;
    height = state_.info.output_height;
    return read_rows();
  }

  End read_rows() {
    const size_t pixel = components == 4 ? 4 : 3;
    // Pillow's pictures begin as zeros: black, and white when they are CMYK.
    rgb.assign(size_t{width} * height * 3, components == 4 ? 255 : 0);
    std::vector<uint8_t> row(width * pixel);
    state_.row = row.data();
    for (; rows < height; ++rows) {
      const Outcome outcome = run([](State& s) -> int {
        return static_cast<int>(jpeg_read_scanlines(&s.info, &s.row, 1));
      });
      if (outcome != Outcome::kDone) return end_of(outcome);
      store(row.data(), rgb.data() + size_t{rows} * width * 3);
    }
    const Outcome outcome = run([](State& s) -> int { return jpeg_finish_decompress(&s.info); });
    finished = outcome == Outcome::kDone;
    // libjpeg-turbo 3, which Pillow has, does not wait for the rest of a second frame header.
    const int marker = state_.info.unread_marker;
    const bool frame =
        marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
    if (outcome == Outcome::kSuspended && frame && !pad_) return End::kError;
    return outcome == Outcome::kFailed ? End::kError : End::kFine;
  }

  void store(const uint8_t* from, uint8_t* to) const {
    if (components != 4) {
      std::memcpy(to, from, size_t{width} * 3);
      return;
    }
    for (uint32_t x = 0; x < width; ++x, from += 4) {
      const int white = from[3];
      for (int c = 0; c < 3; ++c) {
        const int ink = 255 - from[c];
        *to++ = static_cast<uint8_t>(white - (2 * ink * white + 255) / 510);
      }
    }
  }

  bool pad_;
  bool several_scans_ = false;
  uint64_t pixel_limit_;
  uint64_t work_limit_;
  int denominator_;
  State state_ = {};
  std::vector<uint8_t> rest_;
  char message_[JMSG_LENGTH_MAX] = {};
  End end_ = End::kError;
};

}  // namespace fastloader::testing
