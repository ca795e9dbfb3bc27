#pragma once

#include <cstddef>
#include <vector>

#include "image/ops/canvas.h"

namespace fastloader {

// What operation.cpp applies, family by family: each is defined in the file that has its name.
// Numbers are those of Operation::Kind; checks get any that are finite and as many as the kind
// takes, and throw InvalidArgument for those that the operation cannot take whatever the picture.

// --- lookup.cpp ---------------------------------------------------------------------------------

// Each byte becomes another that depends on nothing but its value and channel: ImageOps of Pillow.
// What does not look at the picture first is computed, since that is faster than a table.

/// 255 - x.
void invert(Canvas& canvas);

/// Keeps the highest bits, 0 to 8 of them. (Pillow 13 refuses 0, which made pictures black before.)
void posterize(int bits, Canvas& canvas);

/// Inverts the values from the threshold on, which may lie anywhere and need not be whole.
void solarize(double threshold, Canvas& canvas);

/// timm's solarize_add: adds to values below the threshold, and clips.
void solarize_add(int add, double threshold, Canvas& canvas);

/// Stretches each channel so that its values reach from 0 to 255: ImageOps.autocontrast without a
/// cutoff.
void autocontrast(Canvas& canvas);

/// Spreads each channel's values so that all are about as frequent: ImageOps.equalize.
void equalize(Canvas& canvas);

// --- enhance.cpp --------------------------------------------------------------------------------

// ImageEnhance of Pillow: a blend of a picture and one that lacks something, by any factor. 0 gives
// the latter, 1 leaves the picture as it is, and more has more of what the latter lacks.

/// The other picture is black.
void brightness(float factor, Canvas& canvas);

/// The other picture is of one grey everywhere, the mean of this one in grey.
void contrast(float factor, Canvas& canvas);

/// The other picture is this one in grey.
void saturation(float factor, Canvas& canvas);

/// Grey in three equal channels: Pillow's conversion to L, and back.
void grayscale(Canvas& canvas);

// --- hue.cpp ------------------------------------------------------------------------------------

/// torchvision's adjust_hue of a PIL picture: Pillow's conversion to HSV in bytes, a shift of the
/// hue, and Pillow's conversion back. It is no identity for a factor of 0, as bytes hold less of
/// HSV than of RGB. Expects a factor from -0.5 to 0.5, which are turns of the colour circle.
void hue(double factor, Canvas& canvas);

// --- sharpness.cpp ------------------------------------------------------------------------------

/// ImageEnhance.Sharpness of Pillow: from the picture smoothed by a kernel of 3x3 (factor 0) to the
/// picture itself (1), and beyond. Pixels of the border stay as they are, and so does a picture
/// that is less than three pixels wide or high.
void sharpness(float factor, Canvas& canvas);

// --- pillow_blur.cpp ----------------------------------------------------------------------------

/// Largest radius that pillow_blur() takes.
constexpr double kMaxPillowBlur = kMaxImageEdge;

/// ImageFilter.GaussianBlur of Pillow: along each axis three box blurs, whose boxes end in a part
/// of a pixel. Each of them rounds to bytes. A radius of 0 leaves that axis alone; the sign of a
/// radius is of no account, as in Pillow.
///
/// Takes as long for a large radius as for a small one. It needs 96 bytes of the canvas's scratch
/// for each pixel of the longest edge along which it blurs.
void pillow_blur(double radius_x, double radius_y, Canvas& canvas);

// --- gaussian_blur.cpp --------------------------------------------------------------------------

/// Largest edge of a kernel that gaussian_blur() takes, which bounds the time that it takes.
constexpr size_t kMaxGaussianKernel = 1023;

/// torchvision's gaussian_blur on a PIL picture: a sampled Gaussian of so many pixels, an odd
/// number, over a picture that is mirrored at its edges. torchvision sums in float in an order that
/// is its library's affair, so a value that lies next to a half may differ by 1 from it.
///
/// Throws InvalidArgument where require_mirror() does.
void gaussian_blur(size_t kernel_x, size_t kernel_y, double sigma_x, double sigma_y,
                   Canvas& canvas);

/// Throws InvalidArgument for a picture that is too small to be mirrored as far as these kernels
/// reach.
void require_mirror(size_t kernel_x, size_t kernel_y, const ImageSize& size);

// --- warp.cpp -----------------------------------------------------------------------------------

// Every pixel of the result is fetched from where a formula says: Pillow's Image.transform.
//
// Pillow's arithmetic is repeated operation by operation. What is moved out of its loops here are
// products that do not change within a row, and so have the same bits.

void check_affine(const std::vector<double>& numbers);
void affine(const std::vector<double>& numbers, Canvas& canvas);

void check_perspective(const std::vector<double>& numbers);
void perspective(const std::vector<double>& numbers, Canvas& canvas);

// --- rotate.cpp ---------------------------------------------------------------------------------

/// Image.rotate of Pillow, counterclockwise around the centre. The check gets at least 6 numbers
/// and at most 8.
void check_rotate(const std::vector<double>& numbers);

/// The size of the rotated picture. Throws InvalidArgument where the expanded picture would have no
/// pixels or too many.
ImageSize rotated_size(const std::vector<double>& numbers, const ImageSize& size);
void rotate(const std::vector<double>& numbers, Canvas& canvas);

// --- frame.cpp ----------------------------------------------------------------------------------

// Pixels move as they are: torchvision's pad on a PIL picture, crop and the flips of Pillow.

void check_pad(const std::vector<double>& numbers);
/// The size that pad() makes of a picture's. Throws InvalidArgument where the result, or what
/// negative padding leaves of the picture to be continued, would have no pixels or too many.
ImageSize padded_size(const std::vector<double>& numbers, const ImageSize& size);
void pad(const std::vector<double>& numbers, Canvas& canvas);

void check_crop(const std::vector<double>& numbers);
ImageSize cropped_size(const std::vector<double>& numbers);
void crop(const std::vector<double>& numbers, Canvas& canvas);

/// Left becomes right.
void hflip(Canvas& canvas);
/// Top becomes bottom.
void vflip(Canvas& canvas);

// --- resize.cpp ---------------------------------------------------------------------------------

/// Image.resize of Pillow, without a box and a reducing gap.
void check_resize(const std::vector<double>& numbers);

ImageSize resized_size(const std::vector<double>& numbers);

/// In the canvas's resize_order(). A picture that has the size already stays as it is.
void resize(const std::vector<double>& numbers, Canvas& canvas);

// --- mix.cpp ------------------------------------------------------------------------------------

// A mix of pictures that are made of the same one: of AugMix, https://arxiv.org/abs/1912.02781. The
// canvas keeps the picture with which the mix begins, and a float for each of its bytes, the sum.
// Each product and each addition rounds once, as in arrays of numpy and in tensors.

/// Keeps the picture. The sum is the picture, times the weight. Throws InvalidArgument within a
/// mix.
void mix_begin(float weight, Canvas& canvas);

/// Adds the picture, times the weight, to the sum; then the kept picture is there again. This and
/// the next two throw InvalidArgument outside a mix, and for a picture of another size.
void mix_add(float weight, Canvas& canvas);

/// The same, but the sum becomes what Image.blend makes of it and the picture: bytes.
void mix_blend(float factor, Canvas& canvas);

/// The sum, clipped and cut off to bytes, is the picture now, or a blend of the kept picture and
/// that, if the factor is not 1. The mix is at its end.
void mix_end(float factor, Canvas& canvas);

}  // namespace fastloader
