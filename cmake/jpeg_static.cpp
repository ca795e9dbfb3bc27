#include <cstdio>  // jpeglib.h uses FILE and size_t without including them

#include <jpeglib.h>

// A shared object that needs the whole decoder: links if the static library is
// position-independent.
extern "C" int needs_libjpeg(jpeg_decompress_struct* info, JSAMPARRAY rows) {
  jpeg_CreateDecompress(info, JPEG_LIB_VERSION, sizeof *info);
  jpeg_read_header(info, TRUE);
  jpeg_start_decompress(info);
  return static_cast<int>(jpeg_read_scanlines(info, rows, 1) + jpeg_skip_scanlines(info, 1));
}
