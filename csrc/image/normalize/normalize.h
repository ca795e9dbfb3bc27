#pragma once

#include <cstddef>
#include <cstdint>

namespace fastloader {

constexpr int kMaxChannels = 4;

enum class FloatType : uint8_t { kFloat32, kFloat16, kBFloat16 };

/// Order of the bytes in memory. The *shape* torch shows is NCHW in both cases of the output;
/// kNhwc there is what torch calls channels_last.
enum class Layout : uint8_t { kNchw, kNhwc };

constexpr size_t bytes_per_element(FloatType type) { return type == FloatType::kFloat32 ? 4 : 2; }

/// Everything the normalise kernels need to know besides the two addresses.
///
/// Definition (the only one; scalar, SIMD, CUDA and pure Python agree with it to the bit):
///   y = fma(float(x), scale[c], bias[c]) in float32, then rounded once (to nearest, ties to even)
///   to the output type. Entries of `scale` and `bias` at `channels` and above are not read.
struct NormalizeSpec {
  size_t batch = 0;
  size_t height = 0;
  size_t width = 0;
  int channels = 0;
  Layout in_layout = Layout::kNhwc;
  Layout out_layout = Layout::kNchw;
  FloatType out_type = FloatType::kFloat32;
  float scale[kMaxChannels] = {};
  float bias[kMaxChannels] = {};

  size_t pixels_per_image() const { return height * width; }
  size_t in_bytes() const { return batch * height * width * static_cast<size_t>(channels); }
  size_t out_bytes() const { return in_bytes() * bytes_per_element(out_type); }
};

/// Throws InvalidArgument unless 1 <= channels <= 4 and the scales and biases are finite.
void validate(const NormalizeSpec& spec);

/// Normalises `spec.in_bytes()` bytes at `in` into `spec.out_bytes()` bytes at `out` on the calling
/// thread, with the best instruction set of this CPU (see dispatch.h). Any alignment of either
/// address works; the ranges must not overlap. Throws nothing but what validate() throws.
void normalize(const NormalizeSpec& spec, const uint8_t* in, void* out);

}  // namespace fastloader
