#include "image/dispatch.h"
#include "image/ops/families.h"
#include "image/ops/in_pieces.h"
#include "image/ops/kernels/colour.h"

namespace fastloader {

void hue(double factor, Canvas& canvas) {
  // NumPy takes an integer to a byte by its lowest bits, which is what unsigned bytes add, too.
  const auto shift = static_cast<uint8_t>(static_cast<int>(factor * 255.0));
  in_pieces(canvas,
            [&](uint8_t* rgb, size_t pixels) { canvas.isa().colour->hue(shift, rgb, pixels); });
}

}  // namespace fastloader
