#include "pipeline/sample_decoder.h"

#include <cstring>
#include <string>

#include "base/error.h"
#include "image/split_rgb.h"

namespace fastloader {
namespace {

constexpr size_t kRgb = 3;

bool keeps_all(const SampleGeometry& geometry) {
  return geometry.window.box == CropBox{0, 0, geometry.scaled.width, geometry.scaled.height} &&
         !geometry.window.padded();
}

/// Copies the window of `scaled` into `out`, zeros around it, flipped.
void cut_window(const SampleGeometry& geometry, const uint8_t* scaled, uint8_t* out) {
  const CenterCrop& window = geometry.window;
  const size_t width = window.pad_left + window.box.width + window.pad_right;
  const size_t height = window.pad_top + window.box.height + window.pad_bottom;
  for (size_t y = 0; y < height; ++y) {
    const size_t from = geometry.vertical_flip ? height - 1 - y : y;
    uint8_t* row = out + y * width * kRgb;
    if (from < window.pad_top || from >= window.pad_top + window.box.height) {
      std::memset(row, 0, width * kRgb);
      continue;
    }
    const uint8_t* source =
        scaled +
        ((window.box.top + from - window.pad_top) * geometry.scaled.width + window.box.left) * kRgb;
    if (!geometry.horizontal_flip) {
      std::memset(row, 0, window.pad_left * kRgb);
      std::memcpy(row + window.pad_left * kRgb, source, window.box.width * kRgb);
      std::memset(row + (window.pad_left + window.box.width) * kRgb, 0, window.pad_right * kRgb);
      continue;
    }
    std::memset(row, 0, width * kRgb);
    for (size_t x = 0; x < window.box.width; ++x) {
      std::memcpy(row + (width - 1 - window.pad_left - x) * kRgb, source + x * kRgb, kRgb);
    }
  }
}

/// Makes room without ever giving it back: clearing what a smaller picture left costs as much as
/// writing it.
uint8_t* at_least(std::vector<uint8_t>& memory, size_t bytes) {
  if (memory.size() < bytes) memory.resize(bytes);
  return memory.data();
}

}  // namespace

size_t ImageJob::sample_bytes() const {
  if (output == Output::kNormalized) return normalize.out_bytes();
  const ImageSize size = transform.output().value_or(ImageSize{});
  return size.height * size.width * kRgb;
}

void validate(const ImageJob& job) {
  if (job.source == nullptr) throw InvalidArgument("a job needs a source");
  validate(job.transform);
  if (job.jpeg.scale_denominator != 1) {
    throw InvalidArgument("a job decodes pictures at their full size");
  }
  if (job.output != ImageJob::Output::kNormalized) return;
  validate(job.normalize);
  const NormalizeSpec& spec = job.normalize;
  if (spec.batch != 1 || spec.channels != static_cast<int>(kRgb) ||
      spec.in_layout != Layout::kNhwc ||
      !(ImageSize{spec.height, spec.width} == *job.transform.output())) {
    throw InvalidArgument("the normalisation is not of one RGB picture of the transform's size");
  }
}

void SampleDecoder::begin(const ImageJob& job, const SampleGeometry& geometry, void* out) {
  const ImageSize size = *job.transform.output();
  if (job.output == ImageJob::Output::kNhwcBytes) {
    finished_ = static_cast<uint8_t*>(out);
  } else {
    finished_ = at_least(pixels_, size.height * size.width * kRgb);
  }
  ResizeSpec spec;
  spec.in_width = geometry.box.width;
  spec.in_height = geometry.box.height;
  spec.out_width = geometry.scaled.width;
  spec.out_height = geometry.scaled.height;
  spec.filter = job.transform.filter;
  uint8_t* to = finished_;
  if (keeps_all(geometry)) {
    spec.horizontal_flip = geometry.horizontal_flip;
    spec.vertical_flip = geometry.vertical_flip;
  } else {
    const uint64_t scaled = uint64_t{spec.out_width} * spec.out_height;
    if (scaled > job.jpeg.pixel_limit) {
      throw DecodeError("the picture would be resized to " + std::to_string(spec.out_width) + "x" +
                        std::to_string(spec.out_height) + " pixels, more than the limit of " +
                        std::to_string(job.jpeg.pixel_limit));
    }
    to = at_least(scaled_, scaled * kRgb);
  }
  resizer_.begin(spec, to, spec.out_row_bytes());
}

void SampleDecoder::finish(const ImageJob& job, const SampleGeometry& geometry, void* out) {
  if (!keeps_all(geometry)) cut_window(geometry, scaled_.data(), finished_);
  switch (job.output) {
    case ImageJob::Output::kNhwcBytes:
      return;
    case ImageJob::Output::kNchwBytes:
      return split_rgb(finished_, job.sample_bytes() / kRgb, static_cast<uint8_t*>(out));
    case ImageJob::Output::kNormalized:
      return normalize(job.normalize, finished_, out);
  }
}

const JpegHeader& SampleDecoder::open(const ImageJob& job) {
  // libjpeg asks for two bytes; Pillow tells a JPEG by three and takes anything else for no
  // picture.
  if (file_.size() >= 3 && file_[2] != 0xFF) {
    throw DecodeError("the file does not begin as a JPEG does");
  }
  return jpeg_.open(file_.data(), file_.size(), job.jpeg);
}

void SampleDecoder::decode(const ImageJob& job, uint64_t index, uint64_t seed, void* out) {
  job.source->read(index, file_);
  const JpegHeader& header = open(job);
  const SampleGeometry geometry =
      draw_geometry(job.transform, ImageSize{header.height, header.width}, seed, index);
  begin(job, geometry, out);
  const CropBox& box = geometry.box;
  jpeg_.begin(JpegRegion{static_cast<uint32_t>(box.left), static_cast<uint32_t>(box.top),
                         static_cast<uint32_t>(box.width), static_cast<uint32_t>(box.height)});
  for (size_t y = 0; y < box.height; ++y) resizer_.push_row(jpeg_.read_row());
  finish(job, geometry, out);
}

void SampleDecoder::transform(const ImageJob& job, uint64_t index, uint64_t seed,
                              const uint8_t* pixels, const ImageSize& size, void* out) {
  const SampleGeometry geometry = draw_geometry(job.transform, size, seed, index);
  begin(job, geometry, out);
  const CropBox& box = geometry.box;
  for (size_t y = 0; y < box.height; ++y) {
    resizer_.push_row(pixels + ((box.top + y) * size.width + box.left) * kRgb);
  }
  finish(job, geometry, out);
}

SampleGeometry SampleDecoder::geometry(const ImageJob& job, uint64_t index, uint64_t seed) {
  job.source->read(index, file_);
  const JpegHeader& header = open(job);
  return draw_geometry(job.transform, ImageSize{header.height, header.width}, seed, index);
}

}  // namespace fastloader
