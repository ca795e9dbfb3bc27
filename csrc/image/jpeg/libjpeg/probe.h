#pragma once

#include "image/jpeg/libjpeg/layouts.h"

namespace fastloader {

/// Finds out what the loaded libjpeg does, by decoding made-up pictures with it. Neither the
/// headers nor a function of the library tell: the loaded library may be another one than was
/// compiled against, and libjpeg's own version is that of 1998 in all of them.
///
/// Each is tried once per process, by the first picture that depends on it.

/// Whether leaving out rows and columns of this layout, one of jpeg_layouts(), gives the pixels of
/// a whole decode. jpeg_crop_scanline() and jpeg_skip_scanlines() were repaired many times up
/// to 2.1.5.
bool jpeg_skips_exactly(const JpegLayout& layout);

/// Whether a progressive picture without its last scans is smoothed as by upstream Pillow's
/// libjpeg. How much and where changed up to 3.0.1.
bool jpeg_smooths_as_pillow();

}  // namespace fastloader
