#pragma once

#include <string>

namespace fastloader {

/// libjpeg-turbo as compiled against and as found at run time, for `fastloader doctor`.
struct JpegLibrary {
  std::string compiled_version;  ///< of the headers, such as "2.1.5"
  std::string runtime_text;      ///< what the loaded library says of itself
};

JpegLibrary describe_jpeg_library();

}  // namespace fastloader
