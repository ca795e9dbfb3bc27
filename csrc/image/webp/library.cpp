#include "image/webp/library.h"

#include <webp/decode.h>

namespace fastloader {

std::string webp_library_version() {
  const auto version = static_cast<unsigned>(WebPGetDecoderVersion());
  return std::to_string(version >> 16) + "." + std::to_string(version >> 8 & 0xFF) + "." +
         std::to_string(version & 0xFF);
}

}  // namespace fastloader
