#include "pipeline/image_job.h"

#include <string>
#include <utility>

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
  const bool short_indices = job.output == ImageJob::Output::kIndices8;
  if (!short_indices && job.output != ImageJob::Output::kIndices16) return;
  if (!job.following || !job.following->mask || job.channels != 1) {
    throw InvalidArgument("indices of what is no mask");
  }
  if (job.classes == nullptr) return;
  const size_t indices = short_indices ? kBytes : kBytes * kBytes;
  if (job.classes->size() != indices) {
    throw InvalidArgument("a table of " + std::to_string(job.classes->size()) +
                          " classes; there are " + std::to_string(indices) + " indices");
  }
}

/// The size of the lead of a picture.
ImageSize lead_size(const ImageJob& job, const ImageSize& picture) {
  if (!job.following) return picture;
  const size_t factor = job.following->factor;
  if (picture.height % factor != 0 || picture.width % factor != 0) {
    throw InvalidArgument("a picture of " + std::to_string(picture.width) + "x" +
                          std::to_string(picture.height) + " pixels is not " +
                          std::to_string(factor) + " times as large as another one");
  }
  return {picture.height / factor, picture.width / factor};
}

/// The geometry of a follower, whose lengths are the factor times the lead's.
void follow(const Following& following, SampleGeometry& geometry) {
  const size_t factor = following.factor;
  CropBox& window = geometry.window.box;
  for (size_t* length :
       {&geometry.box.left, &geometry.box.top, &geometry.box.width, &geometry.box.height,
        &geometry.scaled.height, &geometry.scaled.width, &window.left, &window.top, &window.width,
        &window.height, &geometry.window.pad_left, &geometry.window.pad_top,
        &geometry.window.pad_right, &geometry.window.pad_bottom}) {
    *length *= factor;
  }
  if (!following.resampling || following.nearest()) return;
  constexpr ResizeFilter kFilters[] = {ResizeFilter::kLanczos, ResizeFilter::kBilinear,
                                       ResizeFilter::kBicubic, ResizeFilter::kBox,
                                       ResizeFilter::kHamming};
  geometry.filter = kFilters[*following.resampling - 1];
}

}  // namespace

size_t ImageJob::sample_bytes() const { return bytes_of(made_size()); }

size_t ImageJob::bytes_of(const ImageSize& size) const {
  size_t element = 1;
  if (output == Output::kNormalized) element = bytes_per_element(normalize.out_type);
  if (output == Output::kLookedUp) element = sizeof(float);
  if (output == Output::kIndices16) element = sizeof(uint16_t);
  return size.height * size.width * channels * element;
}

ImageSize ImageJob::made_size() const {
  if (recipe != nullptr || following) return output_size;
  return transform.output().value_or(output_size);
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

SampleGeometry draw_geometry(const ImageJob& job, const ImageSize& picture, uint64_t seed,
                             uint64_t index, uint32_t number) {
  SampleGeometry geometry =
      draw_geometry(job.transform, lead_size(job, picture), seed, index, number);
  if (job.following) follow(*job.following, geometry);
  return geometry;
}

std::vector<Operation> draw_operations(const ImageJob& job, const ImageSize& begun, uint64_t seed,
                                       uint64_t index, uint32_t number) {
  if (job.recipe == nullptr) return {};
  std::vector<Operation> drawn = job.recipe->draw(seed, index, number, lead_size(job, begun));
  if (!job.following) return drawn;
  std::vector<Operation> found;
  for (const Operation& operation : drawn) {
    std::optional<Operation> made = followed(operation, *job.following);
    if (!made) continue;
    validate(*made);
    found.push_back(std::move(*made));
  }
  return found;
}

std::vector<Operation> as_operations(const ImageJob& job, const SampleGeometry& geometry) {
  std::vector<Operation> found;
  const auto number = [](size_t length) { return static_cast<double>(length); };
  const ImageSize cropped{geometry.box.height, geometry.box.width};
  if (!(geometry.scaled == cropped)) {
    found.push_back({Operation::Kind::kResize,
                     {number(geometry.scaled.height), number(geometry.scaled.width),
                      static_cast<double>(job.following->resampling.value())}});
  }
  const CenterCrop& window = geometry.window;
  if (window.padded()) {
    const auto& [red, green, blue] = job.transform.fill;
    const bool mask = job.following->mask;
    const double upper = mask ? 0 : green;
    const double none = mask ? 0 : blue;
    found.push_back({Operation::Kind::kPad,
                     {number(window.pad_left), number(window.pad_top), number(window.pad_right),
                      number(window.pad_bottom), 0, static_cast<double>(red), upper, none}});
  }
  if (!(ImageSize{window.box.height, window.box.width} == geometry.scaled)) {
    // The window lies in the picture, or in one axis covers it, where there is no border beside it.
    found.push_back({Operation::Kind::kCrop,
                     {number(window.box.left), number(window.box.top),
                      number(window.pad_left + window.box.width + window.pad_right),
                      number(window.pad_top + window.box.height + window.pad_bottom)}});
  }
  if (geometry.horizontal_flip) found.push_back({Operation::Kind::kHflip, {}});
  if (geometry.vertical_flip) found.push_back({Operation::Kind::kVflip, {}});
  return found;
}

SampleDraw draw_sample(const ImageJob& job, const ImageSize& picture, uint64_t index, uint64_t seed,
                       uint32_t number) {
  SampleDraw drawn;
  drawn.geometry = draw_geometry(job, picture, seed, index, number);
  drawn.operations = draw_operations(job, drawn.geometry.made(), seed, index, number);
  return drawn;
}

}  // namespace fastloader
