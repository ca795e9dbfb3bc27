#pragma once

#include <string>

namespace fastloader {

/// zlib, which inflates PNGs, as compiled against and as found at run time. Empty: this build
/// decodes no PNG.
struct PngLibrary {
  std::string compiled_version;
  std::string runtime_version;
};

PngLibrary describe_png_library();

}  // namespace fastloader
