#pragma once

#include <cstdint>
#include <vector>

#include "image/crop.h"
#include "image/ops/fill.h"

namespace fastloader {

/// The most pixels that an operation makes of a picture. It is where Pillow takes a picture for a
/// decompression bomb and crop() refuses.
constexpr int64_t kMaxMadePixels = 178956970;

/// Throws InvalidArgument, which names the operation, unless the value is a whole number from least
/// to most.
void check_whole(const char* operation, const char* what, double value, double least, double most);

/// The same for a colour, three numbers from `first` on.
void check_fill(const char* operation, const std::vector<double>& numbers, size_t first);
Fill fill_of(const std::vector<double>& numbers, size_t first);

/// Throws InvalidArgument unless a picture of this size has pixels and not too many of them.
ImageSize checked_size(const char* operation, int64_t width, int64_t height);

}  // namespace fastloader
