#pragma once

#include <cstdint>

#include "image/crop.h"

namespace fastloader {

// What the operations refuse. Each function throws InvalidArgument with the operation's name.

/// The most pixels that an operation makes of a picture. It is where Pillow takes a picture for a
/// decompression bomb and crop() refuses.
constexpr int64_t kMaxMadePixels = 178956970;

/// Refuses everything but numbers from least to most.
void check_number(const char* operation, const char* what, double value, double least, double most);

/// Refuses everything but whole numbers from least to most.
void check_whole(const char* operation, const char* what, double value, double least, double most);

/// Refuses a picture without pixels or with too many of them.
ImageSize checked_size(const char* operation, int64_t width, int64_t height);

}  // namespace fastloader
