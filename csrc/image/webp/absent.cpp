#include "base/error.h"
#include "image/webp/decoder.h"
#include "image/webp/library.h"

// Compiled in the place of the other files here where libwebp was not found, or not wanted.

namespace fastloader {

bool WebpDecoder::available() { return false; }

bool WebpDecoder::begins_as_webp(const uint8_t* /*begin*/, size_t /*size*/) { return false; }

PictureSize WebpDecoder::open(const uint8_t* /*data*/, size_t /*size*/,
                              const PictureOptions& /*options*/) {
  throw UnsupportedImage("this build decodes no WebP");
}

void WebpDecoder::begin(const PictureRegion& /*region*/) {
  throw InvalidArgument("WebpDecoder::begin() without open()");
}

const uint8_t* WebpDecoder::read_row() {
  throw InvalidArgument("WebpDecoder::read_row() without a row left in the region");
}

std::string webp_library_version() { return {}; }

}  // namespace fastloader
