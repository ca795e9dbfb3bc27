#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "image/jpeg/decoder.h"
#include "image/picture.h"
#include "image/png/decoder.h"
#include "image/webp/decoder.h"

namespace fastloader {

/// The decoders of all formats behind one interface, that of JpegDecoder: rows of RGB of a region.
/// The file's first bytes say which format it has.
class PictureDecoder {
 public:
  /// Whether a file that begins so is of a format that is decoded here; a Source::Look.
  static bool knows(const uint8_t* begin, size_t size);

  /// The size at which the picture is stored. Throws DecodeError for any other format.
  PictureSize open(const uint8_t* data, size_t size, const JpegOptions& options = {});

  /// Returns at which part of its size the picture is decoded: 1/`denominator` of a JPEG's, if
  /// there is a libjpeg-turbo, and the whole size of others, which returns 1.
  int reduce(int denominator);

  void begin(const PictureRegion& region);
  const uint8_t* read_row();

  /// Why our own decoder did not make all rows of the last picture, or kNone; nothing if that is no
  /// JPEG.
  std::optional<JpegRefusal> jpeg_refusal() const {
    if (format_ != Format::kJpeg) return std::nullopt;
    return jpeg_->refusal();
  }

  /// What became of the last picture's seek index.
  SeekUse seek_use() const { return format_ == Format::kJpeg ? jpeg_->seek_use() : SeekUse::kNone; }

  /// Gives back the memory of each decoder that is more than pictures usually need. Nothing of the
  /// picture can be read from then on.
  void give_back();

  /// Memory kept from picture to picture, the libraries' own aside.
  size_t scratch_bytes() const {
    return jpeg_->scratch_bytes() + png_->scratch_bytes() + webp_->scratch_bytes();
  }

 private:
  enum class Format : uint8_t { kJpeg, kPng, kWebp };

  // Made anew where one has become too large.
  std::unique_ptr<JpegDecoder> jpeg_ = std::make_unique<JpegDecoder>();
  std::unique_ptr<PngDecoder> png_ = std::make_unique<PngDecoder>();
  std::unique_ptr<WebpDecoder> webp_ = std::make_unique<WebpDecoder>();
  Format format_ = Format::kJpeg;  // of the picture that is open
};

}  // namespace fastloader
