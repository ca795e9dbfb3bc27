#pragma once

#include <cstddef>
#include <cstdint>

#include "image/normalize/normalize.h"

namespace fastloader {

// Random erasing, Mixup and CutMix as a variant of normalise. What becomes of each image is drawn
// elsewhere (fastloader/_core/batch/augmentation.py) and crosses the bus with the
// batch as *records*:
//
//   float[kMaxChannels]                       what the constant fill writes into each channel
//   MixRecord[spec.normalize.batch]           one per image that comes out
//   EraseBox[spec.normalize.batch][max_boxes]
//
// Definition (the only one; CPU, CUDA and pure Python agree with it to the bit). All in float32,
// every operation rounded by itself, the last result rounded once to the output type:
//
//   blend of bytes    x = rint(own * own_weight + partner * partner_weight), as timm's
//                     FastCollateMixup; in the box the partner's byte. Then normalise; then erase
//                     the boxes of the image that comes out.
//   blend of floats   normalise and erase own and partner, each by its own boxes; then
//                     y = own * own_weight + partner * partner_weight, in the box the partner's
//                     value, as timm's Mixup on a batch that its PrefetchLoader delivered.
//
// Where such a sum is of infinities it is a NaN, the only thing whose bits are the machine's.
//
// An image with own_weight 1 is not blended. Of overlapping boxes the later one counts.
//
// A normal deviate takes 16 bits of philox4x32 with the counter {element / 8, operation, key[0],
// key[1]}, whose last words are the key of the image's record: half element % 8 of the block, low
// halves first. philox's own key is 0, so that its rounds add constants. The lower 11 bits choose
// the table's entry, the next one is the sign. The operation is 16 for one deviate for each box and
// channel, element = box * 4 + channel; and 17 for one for each value,
// element = (channel * height + y) * width + x.

/// What becomes of the values in an erased box.
enum class Fill : uint8_t {
  kZero,        ///< 0, that is the mean
  kPerBox,      ///< one normal deviate for each box and channel
  kPerElement,  ///< one normal deviate for each value
  kConstant,    ///< the records' constant of the channel
};

enum class Blend : uint8_t { kFloats, kBytes };

struct MixRecord {
  uint32_t own;  ///< image of the input
  uint32_t partner;
  float own_weight;
  float partner_weight;
  int32_t top, bottom, left, right;  ///< the partner's box, right and bottom excluded
  uint32_t boxes;                    ///< erased ones
  uint32_t key[2];                   ///< of the random fill, the low word first
};

struct EraseBox {
  int32_t top, bottom, left, right;
};

/// Bytes of the records before the first MixRecord.
constexpr size_t kRecordsHeader = kMaxChannels * sizeof(float);

struct AugmentSpec {
  NormalizeSpec normalize;  ///< its batch counts the images that come out
  size_t in_batch = 0;      ///< images that go in
  size_t max_boxes = 0;     ///< of an image
  Fill fill = Fill::kZero;
  Blend blend = Blend::kFloats;

  size_t in_bytes() const {
    return in_batch * normalize.pixels_per_image() * static_cast<size_t>(normalize.channels);
  }
  size_t out_bytes() const { return normalize.out_bytes(); }
  size_t record_bytes() const {
    return kRecordsHeader + normalize.batch * (sizeof(MixRecord) + max_boxes * sizeof(EraseBox));
  }
};

/// Throws InvalidArgument unless the kernels can serve the spec: normalise's own conditions, images
/// of less than 2^31 values, and, when floats are blended, as many images in as out.
void validate(const AugmentSpec& spec);

/// Throws InvalidArgument unless records name images that exist and no more boxes than there are.
void validate_records(const AugmentSpec& spec, const void* records);

/// Augments host memory on the calling thread, as normalize() does without records. Throws what
/// the two functions above throw.
void augment(const AugmentSpec& spec, const void* records, const uint8_t* in, void* out);

constexpr size_t kNormalTableSize = 2048;

/// Quantiles of the normal distribution above its median, in units of 2^-16; see
/// tools/make_normal_table.py.
extern const int32_t kNormalTable[kNormalTableSize];

}  // namespace fastloader
