#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "image/dispatch.h"
#include "image/jpeg/file.h"
#include "image/jpeg/planes.h"
#include "image/picture.h"

namespace fastloader {

class SeekIndex;

/// What the decoders of our own share: they decode a region one row of MCUs at a time.
///
/// Bit for bit what libjpeg-turbo gives, or a refusal: anything that a clean encoder does not write
/// is one. Rows that were given before it are right all the same.
class OwnJpeg {
 public:
  /// Both must stay.
  OwnJpeg(const Isa& isa, const JpegFile& file) : isa_(isa), file_(file) {}
  virtual ~OwnJpeg() = default;
  OwnJpeg(const OwnJpeg&) = delete;
  OwnJpeg& operator=(const OwnJpeg&) = delete;

  /// Once the file's headers have been read: makes the tables. What the headers point to must stay
  /// until the last row.
  virtual JpegRefusal open() = 0;

  /// The region must lie in the picture. `index`: the seek index of a sequential file without
  /// restarts, or null. If the decoder then finds damage, the index may be what is wrong.
  void begin(const PictureRegion& region, const std::atomic<bool>* stop,
             const SeekIndex* index = nullptr);

  /// Decodes as far as the region's next row needs it. Throws Stopped.
  JpegRefusal advance();

  /// The region's next row, RGB. Valid until the next call. Only after advance().
  const uint8_t* read_row();

  /// Once the region's last row can be read: whether Pillow may find fault with what lies below.
  virtual JpegRefusal check_rest() = 0;

  /// No more rows are wanted: gives memory back that only an unusually large file has needed.
  virtual void close() {}

  virtual size_t scratch_bytes() const = 0;

 protected:
  virtual void begin_region() = 0;

  /// Writes the samples of the region's blocks in this row of MCUs. Returns false if it is damaged.
  virtual bool decode_row(uint32_t mcu_row) = 0;

  void check_stop() const { check_wanted(stop_); }
  const std::atomic<bool>* stop() const { return stop_; }
  const SeekIndex* index() const { return index_; }
  uint32_t next_mcu_row() const { return mcu_row_; }

  const Isa& isa_;
  const JpegFile& file_;
  JpegPlanes planes_;

 private:
  const std::atomic<bool>* stop_ = nullptr;
  const SeekIndex* index_ = nullptr;
  uint32_t mcu_row_ = 0;   // the next to be decoded
  uint32_t next_row_ = 0;  // of the picture, to be read
};

}  // namespace fastloader
