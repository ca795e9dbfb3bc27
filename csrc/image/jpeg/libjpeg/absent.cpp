#include "base/error.h"
#include "image/jpeg/libjpeg/decoder.h"
#include "image/jpeg/libjpeg/library.h"
#include "image/jpeg/libjpeg/recode.h"

// Compiled in the place of the other files here where libjpeg-turbo was not found, or not wanted.

namespace fastloader {

struct JpegSession {};

bool LibjpegDecoder::available() { return false; }

LibjpegDecoder::LibjpegDecoder() = default;

LibjpegDecoder::~LibjpegDecoder() = default;

const JpegHeader& LibjpegDecoder::open(const uint8_t* /*data*/, size_t /*size*/,
                                       const JpegOptions& /*options*/) {
  throw UnsupportedImage("this build has no libjpeg-turbo");
}

const JpegHeader& LibjpegDecoder::reduce(int /*denominator*/) {
  throw InvalidArgument("LibjpegDecoder::reduce() without open()");
}

void LibjpegDecoder::begin(const PictureRegion& /*region*/) {
  throw InvalidArgument("LibjpegDecoder::begin() without open()");
}

const uint8_t* LibjpegDecoder::read_row() {
  throw InvalidArgument("LibjpegDecoder::read_row() without a row left in the region");
}

long LibjpegDecoder::warnings() const { return 0; }

void LibjpegDecoder::close() {}

std::optional<std::vector<uint8_t>> recode_as_sequential(const uint8_t* /*data*/, size_t /*size*/) {
  throw UnsupportedImage("this build has no libjpeg-turbo");
}

JpegLibrary describe_jpeg_library() { return {}; }

}  // namespace fastloader
