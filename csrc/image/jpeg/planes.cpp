#include "image/jpeg/planes.h"

#include <algorithm>

namespace fastloader {
namespace {

constexpr size_t kAlignment = 64;

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

uint8_t* aligned(uint8_t* address) {
  const size_t over = reinterpret_cast<uintptr_t>(address) % kAlignment;
  return over == 0 ? address : address + (kAlignment - over);
}

/// libjpeg interpolates no colour across a picture that is so few samples wide.
constexpr uint32_t kTooNarrow = 2;

void repeat_each(const uint8_t* in, size_t count, uint8_t* out) {
  for (size_t i = 0; i < count; ++i) out[2 * i] = out[2 * i + 1] = in[i];
}

}  // namespace

void JpegPlanes::begin(const JpegFile& file, const PictureRegion& region) {
  region_ = region;
  components_ = file.components;
  mcu_height_ = static_cast<uint32_t>(kJpegEdge) * file.most.vertical;
  ready_ = region.top;
  plan(file);
  place();
}

/// Which blocks the region needs: those of its samples, and of their neighbours where colour is
/// interpolated.
void JpegPlanes::plan(const JpegFile& file) {
  constexpr auto kEdge = static_cast<uint32_t>(kJpegEdge);
  first_mcu_ = first_mcu_row_ = UINT32_MAX;
  end_mcu_ = end_mcu_row_ = 0;
  for (size_t c = 0; c < components_; ++c) {
    const JpegComponent& component = file.component[c];
    const JpegSampling sampling = component.sampling;
    Plane& plane = plane_[c];
    plane.across = file.most.horizontal / sampling.horizontal;
    plane.down = file.most.vertical / sampling.vertical;
    plane.width = component.width;
    plane.height = component.height;
    uint32_t left = region_.left / plane.across;
    uint32_t right = (region_.left + region_.width - 1) / plane.across;
    uint32_t top = region_.top / plane.down;
    uint32_t bottom = (region_.top + region_.height - 1) / plane.down;
    if (plane.across > 1) {
      left -= left > 0 ? 1 : 0;
      right = std::min(right + 1, plane.width - 1);
    }
    if (plane.down > 1) {
      top -= top > 0 ? 1 : 0;
      bottom = std::min(bottom + 1, plane.height - 1);
    }
    plane.first_x = left / kEdge;
    plane.end_x = right / kEdge + 1;
    plane.first_y = top / kEdge;
    plane.end_y = bottom / kEdge + 1;
    first_mcu_ = std::min(first_mcu_, plane.first_x / sampling.horizontal);
    end_mcu_ = std::max(end_mcu_, (plane.end_x - 1) / sampling.horizontal + 1);
    first_mcu_row_ = std::min(first_mcu_row_, plane.first_y / sampling.vertical);
    end_mcu_row_ = std::max(end_mcu_row_, (plane.end_y - 1) / sampling.vertical + 1);
    plane.rows = 2 * kEdge * sampling.vertical;
  }
  for (size_t c = 0; c < components_; ++c) {
    const uint32_t across = file.component[c].sampling.horizontal;
    plane_[c].origin = first_mcu_ * across;
    // A row may be read one sample before its first, and written there at the picture's edge.
    plane_[c].stride =
        kAlignment + aligned(size_t{end_mcu_ - first_mcu_} * across * kJpegEdge + kJpegSlack);
  }
}

void JpegPlanes::place() {
  size_t bytes = kAlignment;
  for (size_t c = 0; c < components_; ++c) bytes += plane_[c].stride * plane_[c].rows;
  if (samples_.size() < bytes) samples_.resize(bytes);
  uint8_t* at = aligned(samples_.data());
  for (size_t c = 0; c < components_; ++c) {
    plane_[c].samples = at + kAlignment;
    at += plane_[c].stride * plane_[c].rows;
  }
  // The odd column before the region's first, and what kernels write behind the last.
  chroma_bytes_ = aligned(size_t{region_.width} + 2 + 2 * kJpegSlack);
  const size_t rgb = aligned(3 * (size_t{region_.width} + kJpegSlack));
  if (row_.size() < rgb + 2 * chroma_bytes_) row_.resize(rgb + 2 * chroma_bytes_);
}

uint8_t* JpegPlanes::block(size_t component, uint32_t x, uint32_t y) {
  constexpr auto kEdge = static_cast<uint32_t>(kJpegEdge);
  const Plane& plane = plane_[component];
  return samples_of(plane, x * kEdge, y * kEdge);
}

uint8_t* JpegPlanes::samples_of(const Plane& plane, uint32_t x, uint32_t y) const {
  return plane.samples + (y & (plane.rows - 1)) * plane.stride +
         (x - plane.origin * static_cast<uint32_t>(kJpegEdge));
}

void JpegPlanes::finish_mcu_row(uint32_t mcu_row) {
  const uint32_t end = region_.top + region_.height;
  if (mcu_row + 1 == end_mcu_row_) {
    ready_ = end;
    return;
  }
  // The last row takes colour from the MCUs below.
  const bool waits = components_ > 1 && plane_[1].down > 1;
  const bool waits_too = components_ > 1 && plane_[2].down > 1;
  const uint32_t there = (mcu_row + 1) * mcu_height_ - (waits || waits_too ? 1 : 0);
  ready_ = std::clamp(there, ready_, end);
}

const uint8_t* JpegPlanes::chroma_row(const JpegPixelKernels& kernels, const Plane& plane,
                                      uint32_t y, uint8_t* out) {
  const uint32_t x = region_.left / plane.across;
  const uint32_t count = (region_.left + region_.width - 1) / plane.across - x + 1;
  const uint32_t near_y = y / plane.down;
  uint8_t* near = samples_of(plane, x, near_y);
  if (plane.across == 1 && plane.down == 1) return near;
  uint8_t* far = near;
  if (plane.down == 2) {
    const bool lower = y % 2 != 0;
    const uint32_t far_y =
        lower ? std::min(near_y + 1, plane.height - 1) : std::max(near_y, 1u) - 1;
    far = samples_of(plane, x, far_y);
    if (plane.across == 1) {
      kernels.between(near, far, count, lower ? 2 : 1, out);
      return out;
    }
  }
  if (plane.width <= kTooNarrow) {
    repeat_each(near, count, out);
  } else {
    for (uint8_t* row : {near, far}) {
      if (x == 0) row[-1] = row[0];
      if (x + count == plane.width) row[count] = row[count - 1];
    }
    if (plane.down == 1) {
      kernels.widen(near, count, out);
    } else {
      kernels.widen_between(near, far, count, out);
    }
  }
  return out + region_.left % 2;
}

const uint8_t* JpegPlanes::read_row(const JpegPixelKernels& kernels, uint32_t y) {
  uint8_t* const rgb = row_.data();
  const uint8_t* const luma = samples_of(plane_[0], region_.left, y);
  if (components_ == 1) {
    kernels.grey_to_rgb(luma, region_.width, rgb);
    return rgb;
  }
  uint8_t* const chroma = row_.data() + (row_.size() - 2 * chroma_bytes_);
  const uint8_t* const cb = chroma_row(kernels, plane_[1], y, chroma);
  const uint8_t* const cr = chroma_row(kernels, plane_[2], y, chroma + chroma_bytes_);
  kernels.ycc_to_rgb(luma, cb, cr, region_.width, rgb);
  return rgb;
}

}  // namespace fastloader
