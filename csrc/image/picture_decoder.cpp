#include "image/picture_decoder.h"

#include <algorithm>
#include <array>
#include <type_traits>

#include "base/error.h"
#include "image/dispatch.h"
#include "image/jpeg/kernels/entropy.h"

namespace fastloader {
namespace {

// libjpeg asks for the first two; Pillow takes what lacks one of the three for no JPEG.
constexpr std::array<uint8_t, 3> kJpegSignature{0xFF, 0xD8, 0xFF};

/// The most bytes that each decoder keeps from picture to picture.
constexpr size_t kKept = size_t{16} << 20;

bool begins_as_jpeg(const uint8_t* begin, size_t size) {
  return size >= kJpegSignature.size() &&
         std::equal(kJpegSignature.begin(), kJpegSignature.end(), begin);
}

/// Without vector instructions that ours has code for, libjpeg-turbo is the faster one.
bool prefers_own_jpeg() {
  return !LibjpegDecoder::available() || active_isa().jpeg_entropy != &kJpegEntropyScalar;
}

}  // namespace

bool PictureDecoder::knows(const uint8_t* begin, size_t size) {
  return begins_as_jpeg(begin, size) || PngDecoder::begins_as_png(begin, size) ||
         WebpDecoder::begins_as_webp(begin, size);
}

PictureSize PictureDecoder::open(const uint8_t* data, size_t size, const JpegOptions& options) {
  if (PngDecoder::begins_as_png(data, size)) {
    format_ = Format::kPng;
    return png_->open(data, size, options);
  }
  if (options.indices) throw UnsupportedImage("indices of a file that is no PNG");
  if (WebpDecoder::begins_as_webp(data, size)) {
    format_ = Format::kWebp;
    return webp_->open(data, size, options);
  }
  format_ = Format::kJpeg;
  if (size >= kJpegSignature.size() && !begins_as_jpeg(data, size)) {
    throw DecodeError("the file begins as none of the formats that are decoded here");
  }
  JpegOptions chosen = options;
  chosen.own = options.own && prefers_own_jpeg();
  const JpegHeader& header = jpeg_->open(data, size, chosen);
  return {header.width, header.height};
}

int PictureDecoder::reduce(int denominator) {
  if (format_ != Format::kJpeg || !LibjpegDecoder::available()) return 1;
  jpeg_->reduce(denominator);
  return denominator;
}

void PictureDecoder::give_back() {
  const auto bound = [](auto& decoder) {
    if (decoder->scratch_bytes() <= kKept) return;
    decoder = std::make_unique<typename std::decay_t<decltype(decoder)>::element_type>();
  };
  jpeg_->close();
  bound(jpeg_);
  bound(png_);
  bound(webp_);
}

void PictureDecoder::begin(const PictureRegion& region) {
  switch (format_) {
    case Format::kJpeg:
      return jpeg_->begin(region);
    case Format::kPng:
      return png_->begin(region);
    case Format::kWebp:
      return webp_->begin(region);
  }
}

const uint8_t* PictureDecoder::read_row() {
  switch (format_) {
    case Format::kPng:
      return png_->read_row();
    case Format::kWebp:
      return webp_->read_row();
    case Format::kJpeg:
      break;
  }
  return jpeg_->read_row();
}

}  // namespace fastloader
