#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "image/image_transform.h"
#include "image/normalize/normalize.h"
#include "image/ops/operation.h"
#include "image/picture_decoder.h"
#include "image/recipe/recipe.h"
#include "source/source.h"

namespace fastloader {

/// What one loader does with its pictures. Immutable, shared by its batches.
struct ImageJob {
  enum class Output : uint8_t {
    kNhwcBytes,   ///< uint8, as the ring wants it
    kNchwBytes,   ///< uint8, as PILToTensor gives
    kNormalized,  ///< `normalize`
    kLookedUp,    ///< float32, in `table_layout`: what `table` has for each byte
    kAnySize,     ///< RGB bytes as large as they come out: only SampleDecoder::picture() makes them
    kIndices8,    ///< of a mask: uint8, and more than that is refused
    kIndices16,   ///< uint16
  };

  std::shared_ptr<const Source> source;
  ImageTransform transform;
  /// What is done to the pixels that come out of `transform`; null: nothing.
  std::shared_ptr<const Recipe> recipe;
  /// The size of every finished picture, where `transform` alone does not say it.
  ImageSize output_size;
  JpegOptions jpeg;
  /// Where seek indices of the source's JPEGs are found; null: beside them, or nowhere.
  std::shared_ptr<const SeekIndices> seek_indices;
  /// A picture of more pixels is decoded, and worth a warning: Image.MAX_IMAGE_PIXELS.
  uint64_t large_pixels = kPillowPixelLimit / 2;
  /// A picture that shrinks to 1/2, 1/4 or 1/8 or less is decoded at that part of its size.
  /// Boxes and flips stay those of the full size. (Measured and left out: colour that is not
  /// interpolated gains nothing, the fast IDCT 2 %.)
  bool approximate = false;
  /// Turns pictures as EXIF says, before anything else: `transform` sees them as they are shown.
  /// Where only Pillow can tell how, the picture is left to it (UnsupportedImage).
  bool upright = false;
  Output output = Output::kNhwcBytes;
  /// 1: all pictures are grey. They are made as RGB pictures of three equal channels, of which the
  /// finished picture has one, unless `output` is kAnySize.
  size_t channels = 3;
  NormalizeSpec normalize;  ///< kNormalized: of one picture (batch 1, in_layout NHWC)
  /// Each picture is as large as it comes out, with `output` saying the rest. The memory of each is
  /// made when its size is known.
  bool own_sizes = false;
  /// kLookedUp: of each channel, the value of every byte. The steps that make floats of bytes round
  /// now here, now there, and a table gives their very values.
  std::vector<float> table;
  Layout table_layout = Layout::kNchw;
  /// The pictures follow others, whose `transform` and `recipe` these are.
  std::optional<Following> following;
  /// kIndices8, kIndices16: what stands for each index; null: the index.
  std::shared_ptr<const std::vector<uint16_t>> classes;

  ImageSize made_size() const;  ///< of each finished picture, unless they have `own_sizes`
  size_t sample_bytes() const;  ///< of one of that size
  size_t bytes_of(const ImageSize& size) const;
  /// Whether both make pictures of one form: size, channels, type and layout.
  bool makes_as(const ImageJob& other) const;
};

/// Throws InvalidArgument unless there is a source, the transform is valid, all pictures come out
/// in one size, if `output` is not kAnySize, and for kNormalized that is the spec's.
void validate(const ImageJob& job);

/// What becomes of a picture of known size. Throws what the transform's draw_geometry() throws, and
/// InvalidArgument for a follower whose edges are not the factor times those of any lead.
SampleGeometry draw_geometry(const ImageJob& job, const ImageSize& picture, uint64_t seed,
                             uint64_t index, uint32_t number = 0);

/// The recipe's operations on a picture that has this size when the first of them begins.
std::vector<Operation> draw_operations(const ImageJob& job, const ImageSize& begun, uint64_t seed,
                                       uint64_t index, uint32_t number = 0);

/// The geometry as operations, for a picture whose pixels are only moved, but for the part that is
/// used: the picture consists of that already.
std::vector<Operation> as_operations(const ImageJob& job, const SampleGeometry& geometry);

/// What is drawn for one picture of known size.
struct SampleDraw {
  SampleGeometry geometry;
  std::vector<Operation> operations;  ///< of the recipe
};

SampleDraw draw_sample(const ImageJob& job, const ImageSize& picture, uint64_t index, uint64_t seed,
                       uint32_t number = 0);

}  // namespace fastloader
