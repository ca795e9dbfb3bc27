#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "image/dispatch.h"
#include "image/jpeg/file.h"
#include "image/jpeg/header.h"
#include "image/jpeg/libjpeg/decoder.h"
#include "image/jpeg/options.h"
#include "image/jpeg/refusal.h"
#include "image/jpeg/seek/index.h"

namespace fastloader {

class OwnJpeg;

using JpegRegion = PictureRegion;

enum class JpegMaker : uint8_t { kOwn, kLibjpeg };

enum class SeekUse : uint8_t {
  kNone,  ///< there is no index, or it would save next to nothing
  kUsed,
  kUnfit,  ///< it is damaged, or of another file; the picture was decoded without it
};

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
/// Decoders of our own stand behind it, for sequential and for progressive files, and
/// libjpeg-turbo. Ours are faster. They take what clean encoders write and leave the rest, damage
/// above all, to libjpeg-turbo, also when they meet that half-way: the rows that they have given
/// until then are the same. So what a damaged file is worth, libjpeg-turbo says
/// (jpeg/libjpeg/decoder.h). A build without libjpeg-turbo leaves those files to Pillow:
/// UnsupportedImage.
class JpegDecoder {
 public:
  explicit JpegDecoder(const Isa& isa = active_isa());
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
  bool skips_outside() const;

  /// libjpeg's complaints about the picture's data so far. None of them is an error to Pillow.
  long warnings() const;

  /// Who decodes the picture, or has decoded its last rows.
  JpegMaker made_by() const {
    return refusal_ == JpegRefusal::kNone ? JpegMaker::kOwn : JpegMaker::kLibjpeg;
  }
  /// Why it is libjpeg.
  JpegRefusal refusal() const { return refusal_; }

  /// What became of the picture's seek index.
  SeekUse seek_use() const { return seek_use_; }

  /// Gives the picture up, and the memory that libjpeg has for it.
  void close();

  /// Memory kept from picture to picture, libjpeg's own aside, which it returns with the picture.
  size_t scratch_bytes() const;

 private:
  enum class State : uint8_t { kClosed, kOpened, kReading };

  JpegRefusal open_own();
  void describe();
  void check_limits() const;
  const JpegHeader& open_libjpeg();
  void hand_over(JpegRefusal refusal);
  bool saves_much() const;
  void open_seek_index();
  JpegRefusal advance();

  JpegFile file_;
  std::unique_ptr<OwnJpeg> sequential_;
  std::unique_ptr<OwnJpeg> progressive_;
  OwnJpeg* own_;  // the one for the file
  LibjpegDecoder libjpeg_;
  JpegRefusal refusal_ = JpegRefusal::kNotAsked;
  SeekIndex seek_index_;
  std::vector<uint8_t> found_index_;  // the bytes of it, if it was found by the file's hash
  SeekUse seek_use_ = SeekUse::kNone;
  State state_ = State::kClosed;
  JpegHeader header_;
  JpegOptions options_;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
  JpegRegion region_;
  uint32_t rows_left_ = 0;
};

}  // namespace fastloader
