#pragma once

#include <string>
#include <vector>

namespace fastloader {

/// libjpeg-turbo as compiled against and as found at run time, for `fastloader doctor`. Nothing of
/// it is known if this build has none.
struct JpegLibrary {
  std::string compiled_version;  ///< of the headers, such as "2.1.5"
  std::string runtime_text;      ///< what the loaded library says of itself
  /// The kinds of pictures of which it does not decode parts exactly, such as "4:2:0".
  std::vector<std::string> decoded_whole;
};

JpegLibrary describe_jpeg_library();

}  // namespace fastloader
