#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "image/jpeg/layouts.h"
#include "image/picture.h"

namespace fastloader {

struct JpegSession;

/// A scan may be a few bytes long and still has every block of the picture visited.
constexpr uint32_t kMostScans = 100;
/// Scans times pixels: about a second of one thread. It is twelve times Pillow's limit of pixels.
constexpr uint64_t kMostWork = uint64_t{1} << 31;

/// What to do with a picture whose bytes end before its last row.
enum class Truncated : uint8_t {
  kError,  ///< DecodeError, exactly where Pillow says "image file is truncated"
  kPad,    ///< what libjpeg can recover, as Pillow with ImageFile.LOAD_TRUNCATED_IMAGES
};

/// `stop` is looked at after every row of blocks. `check_below` also looks for headers that Pillow
/// may refuse and libjpeg does not (UnsupportedImage: Pillow decides), and costs the time of
/// entropy-decoding the rest.
struct JpegOptions : PictureOptions {
  uint32_t scan_limit = kMostScans;  ///< a picture of more scans is refused, once they have come
  uint64_t work_limit = kMostWork;   ///< scans times pixels
  Truncated truncated = Truncated::kError;
  /// Takes for granted what the libjpeg that is loaded is to be tested for (jpeg/probe.h).
  bool probing = false;
};

enum class JpegColor : uint8_t { kGrey, kYcc, kRgb, kCmyk, kYcck };

struct JpegHeader {
  uint32_t width = 0;  ///< of the file; the orientation in EXIF is not applied
  uint32_t height = 0;
  uint32_t scaled_width = 0;  ///< of the pixels that come out; see reduce()
  uint32_t scaled_height = 0;
  int components = 0;
  JpegColor color = JpegColor::kGrey;
  JpegSampling sampling[kMaxJpegComponents] = {};
  int precision = 0;  ///< bits per sample
  bool progressive = false;
  int adobe_transform = -1;  ///< -1: no Adobe marker
  /// An end marker stands somewhere after the first scan header. Without one the file was cut off
  /// (or never finished), and whether that is an error depends on where its bytes end.
  bool has_end_marker = false;
};

using JpegRegion = PictureRegion;

/// Turns a JPEG into rows of RGB: those of a region, to the bit as upstream Pillow's
/// `Image.open(file).convert("RGB").crop(...)`.
///
///   JpegDecoder decoder;                                  // one per thread, for many pictures
///   const JpegHeader& header = decoder.open(data, size);  // `data` must stay until the last row
///   decoder.begin({left, top, width, height});
///   for (uint32_t y = 0; y < height; ++y) use(decoder.read_row());
///
/// Any call may throw DecodeError, UnsupportedImage (Pillow may be able to) or InvalidArgument (a
/// caller's mistake); open() makes the decoder ready again. What comes out depends on the bytes and
/// the options only, never on the pictures before.
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
class JpegDecoder {
 public:
  JpegDecoder();
  ~JpegDecoder();
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  /// Reads the header; decodes nothing and allocates nothing that grows with the picture. A picture
  /// opened before is given up.
  const JpegHeader& open(const uint8_t* data, size_t size, const JpegOptions& options = {});

  /// Between open() and begin(): decodes at 1/`denominator` (1, 2, 4 or 8) of the size, in the
  /// frequency domain, which is not what a resample gives. Regions are in scaled pixels then.
  const JpegHeader& reduce(int denominator);

  /// Makes the region's first row the next one. Once per open(). The region must not be empty and
  /// must lie in the picture.
  void begin(const JpegRegion& region);

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

 private:
  enum class State : uint8_t { kClosed, kOpened, kReading };

  void choose_columns(const JpegRegion& region);
  void place_row(size_t bytes);
  void skip_above(uint32_t rows);
  void check_rest();
  void fail_or_go_blank();
  void close();
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
