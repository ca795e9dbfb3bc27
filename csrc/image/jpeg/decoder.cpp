#include "image/jpeg/decoder.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "base/xxh3.h"
#include "image/jpeg/pillow_header.h"
#include "image/jpeg/progressive/decoder.h"
#include "image/jpeg/scans.h"
#include "image/jpeg/sequential.h"
#include "image/jpeg/zigzag.h"

namespace fastloader {

JpegDecoder::JpegDecoder(const Isa& isa)
    : sequential_(new SequentialJpeg(isa, file_)),
      progressive_(new ProgressiveJpeg(isa, file_)),
      own_(sequential_.get()) {}

JpegDecoder::~JpegDecoder() = default;

bool JpegDecoder::skips_outside() const {
  return made_by() == JpegMaker::kOwn || libjpeg_.skips_outside();
}

long JpegDecoder::warnings() const {
  return made_by() == JpegMaker::kOwn ? 0 : libjpeg_.warnings();
}

size_t JpegDecoder::scratch_bytes() const {
  return sequential_->scratch_bytes() + progressive_->scratch_bytes() + libjpeg_.scratch_bytes() +
         found_index_.capacity();
}

const JpegHeader& JpegDecoder::open(const uint8_t* data, size_t size, const JpegOptions& options) {
  close();
  data_ = data;
  size_ = size;
  options_ = options;
  seek_use_ = SeekUse::kNone;
  refusal_ = options.own ? open_own() : JpegRefusal::kNotAsked;
  if (refusal_ == JpegRefusal::kNone) {
    describe();
    check_limits();
  } else {
    header_ = open_libjpeg();
  }
  state_ = State::kOpened;
  return header_;
}

JpegRefusal JpegDecoder::open_own() {
  const JpegRefusal refusal = read_jpeg_file(data_, size_, file_);
  if (refusal != JpegRefusal::kNone) return refusal;
  own_ = file_.progressive ? progressive_.get() : sequential_.get();
  return own_->open();
}

void JpegDecoder::close() {
  state_ = State::kClosed;
  rows_left_ = 0;
  own_->close();
  libjpeg_.close();
}

void JpegDecoder::describe() {
  header_ = JpegHeader();
  header_.width = header_.scaled_width = file_.width;
  header_.height = header_.scaled_height = file_.height;
  header_.components = static_cast<int>(file_.components);
  header_.color = file_.components == 1 ? JpegColor::kGrey : JpegColor::kYcc;
  header_.precision = 8;
  header_.progressive = file_.progressive;
  header_.adobe_transform = file_.adobe_transform;
  header_.has_end_marker = true;
  for (size_t c = 0; c < file_.components; ++c) {
    header_.sampling[c] = file_.component[c].sampling;
  }
}

void JpegDecoder::check_limits() const {
  refuse_above(options_.pixel_limit, header_.width, header_.height);
  const size_t scans = std::max<size_t>(file_.scans.size(), 1);
  const uint64_t pixels = uint64_t{header_.width} * header_.height;
  if (scans > static_cast<size_t>(most_jpeg_scans(pixels, options_))) {
    throw RefusedImage(too_many_scans(header_.width, header_.height, options_));
  }
  if (!options_.check_below) return;
  if (const char* block = stumbling_block_of_pillow(data_, size_)) {
    throw UnsupportedImage(std::string("JPEG with ") + block + ", which Pillow may refuse");
  }
}

const JpegHeader& JpegDecoder::reduce(int denominator) {
  if (state_ != State::kOpened) {
    throw InvalidArgument("JpegDecoder::reduce() without open()");
  }
  if (denominator == 1) return header_;
  if (made_by() == JpegMaker::kOwn) hand_over(JpegRefusal::kNotAsked);
  header_ = libjpeg_.reduce(denominator);
  return header_;
}

void JpegDecoder::begin(const JpegRegion& region) {
  if (state_ != State::kOpened) throw InvalidArgument("JpegDecoder::begin() without open()");
  check_region(region, header_.scaled_width, header_.scaled_height);
  region_ = region;
  rows_left_ = region.height;
  if (made_by() == JpegMaker::kOwn) {
    open_seek_index();
    own_->begin(region, options_.stop, seek_use_ == SeekUse::kUsed ? &seek_index_ : nullptr);
  } else {
    libjpeg_.begin(region);
  }
  state_ = State::kReading;
}

/// Whether an index would leave out a good part of the parsing. To look at its file costs a
/// twenty-fifth of parsing all.
bool JpegDecoder::saves_much() const {
  constexpr uint64_t kGoodPart = 8;
  const uint32_t mcu_width = kJpegEdge * file_.most.horizontal;
  const uint32_t mcu_height = kJpegEdge * file_.most.vertical;
  const uint64_t rows_above = region_.top / mcu_height;
  const uint64_t rows = (region_.top + region_.height - 1) / mcu_height + 1 - rows_above;
  const uint64_t first = region_.left / mcu_width;
  const uint64_t columns = (region_.left + region_.width - 1) / mcu_width + 1 - first;
  const uint64_t saved = rows_above * file_.mcus_across + rows * (file_.mcus_across - columns);
  return saved * kGoodPart >= uint64_t{file_.mcus_across} * file_.mcus_down;
}

void JpegDecoder::open_seek_index() {
  const bool can_have = !file_.progressive && file_.restart_interval == 0 && !options_.check_below;
  const bool offered = options_.seek_index.size > 0 || options_.seek_indices != nullptr;
  if (!can_have || !offered || !saves_much()) return;
  const uint64_t hash = xxh3(data_, size_);
  SeekBytes index = options_.seek_index;
  if (index.size == 0 && options_.seek_indices != nullptr) {
    options_.seek_indices->find(hash, found_index_);
    index = {found_index_.data(), found_index_.size()};
  }
  if (index.size == 0) return;
  const bool fits = seek_index_.open(index.data, index.size, file_, size_, hash);
  seek_use_ = fits ? SeekUse::kUsed : SeekUse::kUnfit;
}

/// Decodes as far as the next row needs it. If that fails with an index, decodes the rows that are
/// left without it: those before were seen to be right.
JpegRefusal JpegDecoder::advance() {
  const JpegRefusal refusal = own_->advance();
  if (refusal == JpegRefusal::kNone || seek_use_ != SeekUse::kUsed) return refusal;
  seek_use_ = SeekUse::kUnfit;
  const uint32_t done = region_.height - rows_left_;
  own_->begin({region_.left, region_.top + done, region_.width, rows_left_}, options_.stop);
  return own_->advance();
}

const uint8_t* JpegDecoder::read_row() {
  if (state_ != State::kReading) {
    throw InvalidArgument("JpegDecoder::read_row() without a row left in the region");
  }
  const bool last = rows_left_ == 1;
  const uint8_t* row = nullptr;
  if (made_by() == JpegMaker::kOwn) {
    JpegRefusal refusal = advance();
    if (refusal == JpegRefusal::kNone && last && options_.check_below) {
      refusal = own_->check_rest();
    }
    if (refusal == JpegRefusal::kNone) {
      row = own_->read_row();
    } else {
      hand_over(refusal);
    }
  }
  if (row == nullptr) row = libjpeg_.read_row();
  --rows_left_;
  if (last) close();
  return row;
}

const JpegHeader& JpegDecoder::open_libjpeg() {
  if (!LibjpegDecoder::available()) {
    throw UnsupportedImage(std::string("a JPEG that our own decoder does not know (") +
                           name_of(refusal_) + "), and this build has no libjpeg-turbo");
  }
  return libjpeg_.open(data_, size_, options_);
}

/// libjpeg decodes the rows that are left.
void JpegDecoder::hand_over(JpegRefusal refusal) {
  refusal_ = refusal;
  own_->close();
  open_libjpeg();
  if (state_ != State::kReading) return;
  const uint32_t done = region_.height - rows_left_;
  libjpeg_.begin({region_.left, region_.top + done, region_.width, rows_left_});
}

}  // namespace fastloader
