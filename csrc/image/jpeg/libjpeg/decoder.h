#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "image/jpeg/header.h"
#include "image/jpeg/options.h"
#include "image/picture.h"

namespace fastloader {

struct JpegSession;

/// JpegDecoder's second half: libjpeg-turbo, for all files that the decoder of our own leaves to
/// it. Its functions are those of JpegDecoder.
///
/// When is a damaged picture an error? Pillow's rules, found by experiment:
/// - libjpeg's warnings (damaged entropy-coded data, say) are none;
/// - the bytes end before libjpeg has all it needs for the last row: an error, whichever region is
///   asked for. A missing end marker alone is therefore usually, but not always, an error in a
///   sequential file, and always in a progressive one;
/// - the bytes end after that: none.
/// With kPad, what libjpeg makes of the bytes that are there counts (grey where a sequential file
/// has none left), and rows it cannot make are as Pillow leaves them: black, of a CMYK file white.
/// Unlike Pillow, kPad keeps errors that have nothing to do with missing bytes, and refuses a
/// picture that cannot even be begun: Pillow gives a black one.
class LibjpegDecoder {
 public:
  /// Whether this build has libjpeg-turbo. If not, open() throws UnsupportedImage.
  static bool available();

  LibjpegDecoder();
  ~LibjpegDecoder();
  LibjpegDecoder(const LibjpegDecoder&) = delete;
  LibjpegDecoder& operator=(const LibjpegDecoder&) = delete;

  /// Reads the header; decodes nothing and allocates nothing that grows with the picture. A picture
  /// opened before is given up.
  const JpegHeader& open(const uint8_t* data, size_t size, const JpegOptions& options = {});

  /// Between open() and begin(): decodes at 1/`denominator` (1, 2, 4 or 8) of the size, in the
  /// frequency domain, which is not what a resample gives. Regions are in scaled pixels then.
  const JpegHeader& reduce(int denominator);

  /// Makes the region's first row the next one. Once per open(). The region must not be empty and
  /// must lie in the picture.
  void begin(const PictureRegion& region);

  /// The region's next row: `region.width` times red, green, blue. Valid until the next call.
  const uint8_t* read_row();

  uint32_t rows_left() const { return rows_left_; }

  /// Whether begin() leaves out the columns and rows outside the region; otherwise the picture is
  /// decoded whole, down to the region's last row, because nothing proves the short way exact.
  bool skips_outside() const { return skips_outside_; }

  /// libjpeg's complaints about the picture's data so far. None of them is an error to Pillow.
  long warnings() const;

  /// Memory kept from picture to picture, libjpeg's own aside, which it returns with the picture.
  size_t scratch_bytes() const { return buffer_.capacity(); }

  /// Gives the picture up, and the memory that libjpeg has for it.
  void close();

 private:
  enum class State : uint8_t { kClosed, kOpened, kReading };

  void choose_columns(const PictureRegion& region);
  void place_row(size_t bytes);
  void skip_above(uint32_t rows);
  void check_rest();
  void fail_or_go_blank();
  [[noreturn]] void fail();
  void bound_work();

  std::unique_ptr<JpegSession> session_;
  JpegOptions options_;
  JpegHeader header_;
  State state_ = State::kClosed;
  std::vector<uint8_t> buffer_;
  size_t row_bytes_ = 0;       // of a row as libjpeg gives it
  uint8_t* wanted_ = nullptr;  // where the region's first column is in it
  uint32_t region_width_ = 0;
  uint32_t rows_left_ = 0;
  bool blank_ = false;  // no further row can be made
  bool skips_outside_ = false;
};

}  // namespace fastloader
