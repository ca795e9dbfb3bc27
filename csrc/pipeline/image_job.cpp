#include "pipeline/image_job.h"

#include <string>

#include "base/error.h"

namespace fastloader {
namespace {

constexpr size_t kRgb = 3;
constexpr size_t kBytes = 256;  // the values that there are

/// What is done to the pixels of a picture, whatever its size.
void validate_end(const ImageJob& job) {
  if (job.channels != 1 && job.channels != kRgb) {
    throw InvalidArgument("pictures of " + std::to_string(job.channels) +
                          " channels; they have one or three");
  }
  if (job.output == ImageJob::Output::kLookedUp && job.table.size() != job.channels * kBytes) {
    throw InvalidArgument("a table of " + std::to_string(job.table.size()) +
                          " floats; each channel has 256");
  }
  if (job.output == ImageJob::Output::kNormalized) validate(job.normalize);
}

}  // namespace

size_t ImageJob::sample_bytes() const { return bytes_of(made_size()); }

size_t ImageJob::bytes_of(const ImageSize& size) const {
  size_t element = 1;
  if (output == Output::kNormalized) element = bytes_per_element(normalize.out_type);
  if (output == Output::kLookedUp) element = sizeof(float);
  return size.height * size.width * channels * element;
}

ImageSize ImageJob::made_size() const {
  return recipe != nullptr ? output_size : transform.output().value_or(output_size);
}

bool ImageJob::makes_as(const ImageJob& other) const {
  const bool alike = output == other.output && channels == other.channels &&
                     own_sizes == other.own_sizes &&
                     (own_sizes || made_size() == other.made_size());
  if (alike && output == Output::kLookedUp) return table_layout == other.table_layout;
  if (!alike || output != Output::kNormalized) return alike;
  return normalize.out_type == other.normalize.out_type &&
         normalize.out_layout == other.normalize.out_layout;
}

void validate(const ImageJob& job) {
  if (job.source == nullptr) throw InvalidArgument("a job needs a source");
  validate(job.transform);
  if (job.output == ImageJob::Output::kAnySize) return;
  const ImageSize size = job.made_size();
  if (job.own_sizes) return validate_end(job);
  if (size.height == 0 || size.width == 0) {
    throw InvalidArgument("the pictures would come out in different sizes");
  }
  if (size.height > kMaxImageEdge || size.width > kMaxImageEdge) {
    throw InvalidArgument("the pictures would come out in " + std::to_string(size.width) + "x" +
                          std::to_string(size.height) + " pixels; an edge has at most " +
                          std::to_string(kMaxImageEdge));
  }
  validate_end(job);
  if (job.output != ImageJob::Output::kNormalized) return;
  const NormalizeSpec& spec = job.normalize;
  if (spec.batch != 1 || spec.channels != static_cast<int>(job.channels) ||
      spec.in_layout != Layout::kNhwc || !(ImageSize{spec.height, spec.width} == size)) {
    throw InvalidArgument(
        "the normalisation is not of one picture of the transform's size and channels");
  }
}

SampleDraw draw_sample(const ImageJob& job, const ImageSize& picture, uint64_t index, uint64_t seed,
                       uint32_t number) {
  SampleDraw drawn;
  drawn.geometry = draw_geometry(job.transform, picture, seed, index, number);
  if (job.recipe != nullptr) {
    const ImageSize begun = job.transform.output().value_or(drawn.geometry.scaled);
    drawn.operations = job.recipe->draw(seed, index, number, begun);
  }
  return drawn;
}

}  // namespace fastloader
