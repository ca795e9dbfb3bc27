#include "image/jpeg/libjpeg/decoder.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/error.h"
#include "image/jpeg/file.h"
#include "image/jpeg/libjpeg/probe.h"
#include "image/jpeg/libjpeg/session.h"
#include "image/jpeg/pillow_header.h"
#include "image/jpeg/scans.h"

#include <jerror.h>  // after jpeglib.h

#ifndef LIBJPEG_TURBO_VERSION
#error "fastloader needs libjpeg-turbo; these headers are of another libjpeg"
#endif

namespace fastloader {
namespace {

/// Whether libjpeg's error means a kind of JPEG it was not built for, rather than damage.
bool means_unsupported(int code) {
  switch (code) {
    case JERR_ARITH_NOTIMPL:
    case JERR_BAD_PRECISION:
    case JERR_CCIR601_NOTIMPL:
    case JERR_COMPONENT_COUNT:
    case JERR_CONVERSION_NOTIMPL:
    case JERR_FRACT_SAMPLE_NOTIMPL:
    case JERR_NOTIMPL:
    case JERR_NOT_COMPILED:
    case JERR_SOF_UNSUPPORTED:
      return true;
    default:
      return false;
  }
}

JpegColor color_of(const jpeg_decompress_struct& info) {
  switch (info.jpeg_color_space) {
    case JCS_GRAYSCALE:
      return JpegColor::kGrey;
    case JCS_YCbCr:
      return JpegColor::kYcc;
    case JCS_RGB:
      return JpegColor::kRgb;
    case JCS_CMYK:
      return JpegColor::kCmyk;
    case JCS_YCCK:
      return JpegColor::kYcck;
    default:
      throw UnsupportedImage("JPEG of " + std::to_string(info.num_components) +
                             " components in a colour space that is not known");
  }
}

JpegHeader header_of(const jpeg_decompress_struct& info) {
  JpegHeader header;
  header.width = header.scaled_width = info.image_width;
  header.height = header.scaled_height = info.image_height;
  header.components = info.num_components;
  header.precision = info.data_precision;
  header.progressive = info.progressive_mode != FALSE;
  header.adobe_transform = info.saw_Adobe_marker ? info.Adobe_transform : -1;
  if (header.components != 1 && header.components != 3 && header.components != 4) {
    throw UnsupportedImage("JPEG of " + std::to_string(header.components) + " components");
  }
  if (header.precision != 8) {
    throw UnsupportedImage("JPEG of " + std::to_string(header.precision) + " bits per sample");
  }
  // libjpeg can, but not from a source that suspends, which is Pillow's: how much of such a file it
  // decodes depends on the size of its reads.
  if (info.arith_code) throw UnsupportedImage("arithmetic-coded JPEG");
  // Newer libraries decode lossless files too, whose first scan has no other mark in public fields.
  if (!header.progressive && info.Se == 0) throw UnsupportedImage("lossless JPEG");
  header.color = color_of(info);
  for (int c = 0; c < header.components; ++c) {
    header.sampling[c] = {static_cast<uint8_t>(info.comp_info[c].h_samp_factor),
                          static_cast<uint8_t>(info.comp_info[c].v_samp_factor)};
  }
  return header;
}

/// libjpeg smooths across blocks as long as scans of a progressive file are missing, and takes its
/// neighbours from what was decoded: not what a whole decode has there.
bool may_be_smoothed(const jpeg_decompress_struct& info) {
  if (!info.progressive_mode) return false;
  if (info.coef_bits == nullptr) return true;
  for (int c = 0; c < info.num_components; ++c) {
    for (int k = 0; k < DCTSIZE2; ++k) {
      if (info.coef_bits[c][k] != 0) return true;
    }
  }
  return false;
}

/// a * b / 255, rounded to nearest, for 0 <= a, b <= 255.
unsigned multiply_fraction(unsigned a, unsigned b) {
  const unsigned product = a * b + 128;
  return (product + (product >> 8)) >> 8;
}

/// Pillow takes every four-component JPEG for inverted, as Adobe writes them, and makes
/// r = white * (1 - c), white = 1 - k, in integers. In place: three bytes take the place of four.
void cmyk_to_rgb(uint8_t* pixels, size_t count) {
  const uint8_t* in = pixels;
  uint8_t* out = pixels;
  for (size_t i = 0; i < count; ++i, in += 4, out += 3) {
    const unsigned white = in[3];
    const uint8_t rgb[3] = {static_cast<uint8_t>(white - multiply_fraction(255u - in[0], white)),
                            static_cast<uint8_t>(white - multiply_fraction(255u - in[1], white)),
                            static_cast<uint8_t>(white - multiply_fraction(255u - in[2], white))};
    std::memcpy(out, rgb, 3);
  }
}

void start(JpegSession& session) { jpeg_start_decompress(&session.info); }

/// Leaves `crop_left` and `crop_width` rounded outwards to whole blocks.
void crop(JpegSession& session) {
  jpeg_crop_scanline(&session.info, &session.crop_left, &session.crop_width);
}

void read_row_into(JpegSession& session) {
  // The source never suspends, so a row comes out or the call does not return.
  jpeg_read_scanlines(&session.info, &session.row, 1);
}

void read_rows_over(JpegSession& session) {
  for (; session.rows > 0; --session.rows) read_row_into(session);
}

void skip_rows(JpegSession& session) { jpeg_skip_scanlines(&session.info, session.rows); }

/// Skipping down to the bottom would just declare the picture read, so the last row is decoded.
void skip_all_but_last(JpegSession& session) {
  if (session.rows > 1) jpeg_skip_scanlines(&session.info, session.rows - 1);
  read_row_into(session);
}

void finish(JpegSession& session) { jpeg_finish_decompress(&session.info); }

constexpr size_t kAvoidAlignment = 32;

}  // namespace

bool LibjpegDecoder::available() { return true; }

LibjpegDecoder::LibjpegDecoder() : session_(new JpegSession()) {}

LibjpegDecoder::~LibjpegDecoder() { session_->end(); }

long LibjpegDecoder::warnings() const { return session_->errors.num_warnings; }

void LibjpegDecoder::close() {
  state_ = State::kClosed;
  rows_left_ = 0;
  session_->end();  // a progressive picture's coefficients do not wait for the next picture
}

void LibjpegDecoder::fail() {
  close();
  if (session_->end_kind == JpegSession::End::kStopped) {
    throw Stopped("the picture is not wanted any more");
  }
  if (session_->end_kind == JpegSession::End::kTooMany) {
    throw RefusedImage(too_many_scans(header_.width, header_.height, options_));
  }
  if (means_unsupported(session_->code)) throw UnsupportedImage(session_->message);
  throw DecodeError(session_->message);
}

const JpegHeader& LibjpegDecoder::open(const uint8_t* data, size_t size,
                                       const JpegOptions& options) {
  close();
  blank_ = false;
  skips_outside_ = false;
  header_ = JpegHeader();
  options_ = options;
  if (size == 0) throw DecodeError("the file is empty");
  if (!session_->start(data, size)) fail();
  const bool read = session_->run([](JpegSession& session) {
    // A file may begin with a stream of tables only; Pillow passes over it.
    while (jpeg_read_header(&session.info, FALSE) == JPEG_HEADER_TABLES_ONLY) {
    }
  });
  if (!read) fail();
  jpeg_decompress_struct& info = session_->info;
  header_ = header_of(info);
  bound_work();
  if (options.check_below) {
    if (const char* block = stumbling_block_of_pillow(data, size)) {
      throw UnsupportedImage(std::string("JPEG with ") + block + ", which Pillow may refuse");
    }
  }
  header_.has_end_marker =
      has_jpeg_end_marker(session_->source.next_input_byte, session_->source.bytes_in_buffer);
  info.out_color_space = header_.components == 4 ? JCS_CMYK : JCS_RGB;
  session_->may_pad = options.truncated == Truncated::kPad;
  state_ = State::kOpened;
  return header_;
}

void LibjpegDecoder::bound_work() {
  refuse_above(options_.pixel_limit, header_.width, header_.height);
  session_->stop = options_.stop;
  session_->most_scans = most_jpeg_scans(uint64_t{header_.width} * header_.height, options_);
}

const JpegHeader& LibjpegDecoder::reduce(int denominator) {
  if (state_ != State::kOpened) {
    throw InvalidArgument("LibjpegDecoder::reduce() without open()");
  }
  if (denominator != 1 && denominator != 2 && denominator != 4 && denominator != 8) {
    throw InvalidArgument("a JPEG at 1/" + std::to_string(denominator) +
                          " of its size; use 1, 2, 4 or 8");
  }
  jpeg_decompress_struct& info = session_->info;
  info.scale_num = 1;
  info.scale_denom = static_cast<unsigned>(denominator);
  if (!session_->run([](JpegSession& s) { jpeg_calc_output_dimensions(&s.info); })) fail();
  header_.scaled_width = info.output_width;
  header_.scaled_height = info.output_height;
  return header_;
}

void LibjpegDecoder::begin(const PictureRegion& region) {
  if (state_ != State::kOpened) throw InvalidArgument("LibjpegDecoder::begin() without open()");
  check_region(region, header_.scaled_width, header_.scaled_height);
  state_ = State::kReading;
  region_width_ = region.width;
  rows_left_ = region.height;
  // Of a progressive file this decodes everything but the pixels. It cannot go on from a failure,
  // so there is nothing to pad.
  if (!session_->run(start)) fail();
  const bool smoothed = may_be_smoothed(session_->info);
  // A truncated picture is not exact by nature: a caller that asks for padding gets this library's
  // best.
  if (smoothed && !session_->starved && !options_.probing && !jpeg_smooths_as_pillow()) {
    close();
    throw UnsupportedImage(
        "progressive JPEG without its last scans, which this libjpeg-turbo smooths in its own way");
  }
  skips_outside_ = !smoothed && (options_.probing ||
                                 jpeg_layout_is_proven(header_.components, header_.sampling));
  choose_columns(region);
  skip_above(region.top);
}

void LibjpegDecoder::choose_columns(const PictureRegion& region) {
  jpeg_decompress_struct& info = session_->info;
  JDIMENSION first = 0;
  if (skips_outside_ && region.width < info.output_width) {
    // One column more on either side than is wanted: upsampling takes its neighbours from there,
    // and at the edges of what is decoded it has to make do without. And never very few columns:
    // libjpeg interpolates no colour of a picture that is one or two samples wide.
    constexpr JDIMENSION kFewest = 16;
    first = region.left > 0 ? region.left - 1 : 0;
    const JDIMENSION end =
        std::min(info.output_width, std::max(region.left + region.width + 1, first + kFewest));
    first = std::min(first, end - std::min(end, kFewest));
    session_->crop_left = first;
    session_->crop_width = end - first;
    if (!session_->run(crop)) fail();
    first = session_->crop_left;
  }
  const size_t pixel = static_cast<size_t>(info.output_components);
  place_row(info.output_width * pixel);
  wanted_ = session_->row + (region.left - first) * pixel;
}

void LibjpegDecoder::place_row(size_t bytes) {
  // Twice a row: check_rest() reads the rows below the region behind the last one, which the caller
  // still looks at.
  buffer_.resize(std::max(buffer_.size(), 2 * bytes + kAvoidAlignment));
  // Never at a multiple of 32: libjpeg-turbo then stores past the caches, and a decode takes a
  // tenth longer, even before the row is read.
  const uintptr_t address = reinterpret_cast<uintptr_t>(buffer_.data());
  const uintptr_t over = address % kAvoidAlignment;
  const uintptr_t wanted = kAvoidAlignment / 2;
  session_->row =
      buffer_.data() + (over <= wanted ? wanted - over : wanted + kAvoidAlignment - over);
  row_bytes_ = bytes;
}

void LibjpegDecoder::skip_above(uint32_t rows) {
  if (rows == 0) return;
  session_->rows = rows;
  if (!session_->run(skips_outside_ ? skip_rows : read_rows_over)) fail_or_go_blank();
}

const uint8_t* LibjpegDecoder::read_row() {
  if (state_ != State::kReading) {
    throw InvalidArgument("LibjpegDecoder::read_row() without a row left in the region");
  }
  uint8_t* pixels = wanted_;
  if (!blank_) {
    if (!session_->run(read_row_into)) {
      fail_or_go_blank();
    } else if (header_.components == 4) {
      cmyk_to_rgb(pixels, region_width_);
    }
  }
  if (blank_) {
    std::memset(pixels, header_.components == 4 ? 255 : 0, region_width_ * size_t{3});
  }
  if (--rows_left_ == 0) {
    check_rest();
    close();
  }
  return pixels;
}

/// Looks at what lies below the region, as far as the options or the missing end marker demand.
/// Pillow reads on to the end marker after the last row and takes an error there for one, but not
/// the end of the bytes. Its libjpeg-turbo, from version 3 on, takes another frame header for an
/// error before it has read any of it.
void LibjpegDecoder::check_rest() {
  if (options_.truncated == Truncated::kPad) return;
  jpeg_decompress_struct& info = session_->info;
  session_->rows = info.output_height - info.output_scanline;
  if (session_->rows > 0) {
    if (header_.has_end_marker && !options_.check_below) return;
    session_->row += row_bytes_;
    if (!session_->run(skips_outside_ ? skip_all_but_last : read_rows_over)) fail();
  }
  if (session_->run(finish)) return;
  if (!session_->starved || session_->end_kind != JpegSession::End::kFailed) fail();
  if (is_jpeg_frame(static_cast<uint8_t>(info.unread_marker))) {
    close();
    throw DecodeError("broken data stream: a second frame header where the picture ends");
  }
}

/// After the bytes have ended, nothing libjpeg says is news.
void LibjpegDecoder::fail_or_go_blank() {
  const bool out_of_bytes = session_->starved && session_->end_kind == JpegSession::End::kFailed;
  if (!session_->may_pad || !out_of_bytes) fail();
  blank_ = true;
}

}  // namespace fastloader
