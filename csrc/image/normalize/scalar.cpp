#include "image/normalize/runs.h"

namespace fastloader {
namespace {

// A table of all 256 values per channel: std::fma without hardware support is a slow library call,
// and this is what CPUs without it run.
template <FloatType kType>
struct Table {
  using Bits = typename FloatBits<kType>::Type;

  explicit Table(const NormalizeSpec& spec) {
    for (size_t c = 0; c < static_cast<size_t>(spec.channels); ++c) {
      for (size_t value = 0; value < 256; ++value) {
        entries[c][value] =
            round_to<kType>(std::fma(static_cast<float>(value), spec.scale[c], spec.bias[c]));
      }
    }
  }

  Bits entries[kMaxChannels][256];
};

template <FloatType kType>
void normalize_typed_scalar(const NormalizeSpec& spec, const uint8_t* in, uint8_t* out) {
  const Table<kType> table(spec);
  const size_t channels = static_cast<size_t>(spec.channels);
  const size_t plane = spec.pixels_per_image();
  const bool planar_in = spec.in_layout == Layout::kNchw;
  const bool planar_out = spec.out_layout == Layout::kNchw;
  const size_t in_pixel = planar_in ? 1 : channels;
  const size_t in_channel = planar_in ? plane : 1;
  const size_t out_pixel = planar_out ? 1 : channels;
  const size_t out_channel = planar_out ? plane : 1;
  using Bits = typename Table<kType>::Bits;
  for (size_t n = 0; n < spec.batch; ++n) {
    const uint8_t* image_in = in + n * plane * channels;
    uint8_t* image_out = out + n * plane * channels * sizeof(Bits);
    for (size_t p = 0; p < plane; ++p) {
      for (size_t c = 0; c < channels; ++c) {
        const Bits bits = table.entries[c][image_in[p * in_pixel + c * in_channel]];
        std::memcpy(image_out + (p * out_pixel + c * out_channel) * sizeof(Bits), &bits,
                    sizeof(Bits));
      }
    }
  }
}

}  // namespace

void normalize_scalar(const NormalizeSpec& spec, const uint8_t* in, void* out) {
  uint8_t* bytes = static_cast<uint8_t*>(out);
  switch (spec.out_type) {
    case FloatType::kFloat32:
      return normalize_typed_scalar<FloatType::kFloat32>(spec, in, bytes);
    case FloatType::kFloat16:
      return normalize_typed_scalar<FloatType::kFloat16>(spec, in, bytes);
    case FloatType::kBFloat16:
      return normalize_typed_scalar<FloatType::kBFloat16>(spec, in, bytes);
  }
}

}  // namespace fastloader
