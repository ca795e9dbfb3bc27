#include "image/normalize/normalize.h"

#include <cmath>
#include <string>

#include "base/error.h"
#include "image/dispatch.h"

namespace fastloader {

void validate(const NormalizeSpec& spec) {
  if (spec.channels < 1 || spec.channels > kMaxChannels) {
    throw InvalidArgument("normalize: channels must be 1 to " + std::to_string(kMaxChannels) +
                          ", not " + std::to_string(spec.channels));
  }
  for (int channel = 0; channel < spec.channels; ++channel) {
    if (!std::isfinite(spec.scale[channel]) || !std::isfinite(spec.bias[channel])) {
      throw InvalidArgument("normalize: scale and bias of channel " + std::to_string(channel) +
                            " must be finite, not " + std::to_string(spec.scale[channel]) +
                            " and " + std::to_string(spec.bias[channel]));
    }
  }
}

void normalize(const NormalizeSpec& spec, const uint8_t* in, void* out) {
  validate(spec);
  active_isa().normalize(spec, in, out);
}

}  // namespace fastloader
