#include "image/jpeg/libjpeg/library.h"

#include <cstdio>  // jpeglib.h uses FILE and size_t without including them

#include <jerror.h>
#include <jpeglib.h>

#include "image/jpeg/libjpeg/probe.h"

namespace fastloader {
namespace {

// LIBJPEG_TURBO_VERSION is a bare token such as 2.1.5, not a string.
#define FASTLOADER_TEXT_OF(token) #token
#define FASTLOADER_TEXT(token) FASTLOADER_TEXT_OF(token)

}  // namespace

JpegLibrary describe_jpeg_library() {
  jpeg_error_mgr messages;
  jpeg_std_error(&messages);
  JpegLibrary library;
  library.compiled_version = FASTLOADER_TEXT(LIBJPEG_TURBO_VERSION);
  library.runtime_text = std::string(messages.jpeg_message_table[JMSG_VERSION]) + "; " +
                         messages.jpeg_message_table[JMSG_COPYRIGHT];
  for (size_t i = 0; i < kJpegLayouts; ++i) {
    const JpegLayout& layout = jpeg_layouts()[i];
    if (!jpeg_skips_exactly(layout)) library.decoded_whole.push_back(layout.name);
  }
  return library;
}

}  // namespace fastloader
