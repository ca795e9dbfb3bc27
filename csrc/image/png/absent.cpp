#include "base/error.h"
#include "image/png/decoder.h"
#include "image/png/library.h"

// Compiled in the place of the other files here where zlib was not found, or not wanted.

namespace fastloader {

struct PngDecoder::State {};

bool PngDecoder::available() { return false; }

bool PngDecoder::begins_as_png(const uint8_t* /*begin*/, size_t /*size*/) { return false; }

PngDecoder::PngDecoder() = default;

PngDecoder::~PngDecoder() = default;

PictureSize PngDecoder::open(const uint8_t* /*data*/, size_t /*size*/,
                             const PictureOptions& /*options*/) {
  throw UnsupportedImage("this build decodes no PNG");
}

void PngDecoder::begin(const PictureRegion& /*region*/) {
  throw InvalidArgument("PngDecoder::begin() without open()");
}

const uint8_t* PngDecoder::read_row() {
  throw InvalidArgument("PngDecoder::read_row() without a row left in the region");
}

size_t PngDecoder::scratch_bytes() const { return 0; }

PngLibrary describe_png_library() { return {}; }

}  // namespace fastloader
