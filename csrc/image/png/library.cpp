#include "image/png/library.h"

#include <zlib.h>

namespace fastloader {

PngLibrary describe_png_library() { return {ZLIB_VERSION, zlibVersion()}; }

}  // namespace fastloader
