#include "image/jpeg/own.h"

namespace fastloader {

void OwnJpeg::begin(const PictureRegion& region, const std::atomic<bool>* stop,
                    const SeekIndex* index) {
  stop_ = stop;
  index_ = index;
  planes_.begin(file_, region);
  mcu_row_ = planes_.first_mcu_row();
  next_row_ = region.top;
  begin_region();
}

JpegRefusal OwnJpeg::advance() {
  while (planes_.ready() <= next_row_) {
    check_stop();
    if (!decode_row(mcu_row_)) return JpegRefusal::kDamage;
    planes_.finish_mcu_row(mcu_row_++);
  }
  return JpegRefusal::kNone;
}

const uint8_t* OwnJpeg::read_row() { return planes_.read_row(*isa_.jpeg_pixels, next_row_++); }

}  // namespace fastloader
