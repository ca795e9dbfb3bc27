#include <pybind11/stl.h>

#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "bindings/decoding.h"
#include "bindings/enum.h"
#include "bindings/gil.h"
#include "bindings/register.h"
#include "image/jpeg/scans.h"
#include "image/ops/operation.h"
#include "pipeline/decode_pool.h"

namespace py = pybind11;

namespace fastloader::bindings {
namespace {

using Job = std::shared_ptr<ImageJob>;

enum class DecodeMode : uint8_t { kExact, kWhole, kFast };
enum class Interpolation : uint8_t { kBox, kBilinear, kBicubic, kHamming, kLanczos, kRandom };

/// That of kRandom is drawn, for each picture.
ResizeFilter filter_of(Interpolation interpolation) {
  switch (interpolation) {
    case Interpolation::kBox:
      return ResizeFilter::kBox;
    case Interpolation::kBicubic:
      return ResizeFilter::kBicubic;
    case Interpolation::kHamming:
      return ResizeFilter::kHamming;
    case Interpolation::kLanczos:
      return ResizeFilter::kLanczos;
    case Interpolation::kBilinear:
    case Interpolation::kRandom:
      return ResizeFilter::kBilinear;
  }
  return ResizeFilter::kBilinear;
}

const char* name_of(ResizeFilter filter) {
  switch (filter) {
    case ResizeFilter::kBox:
      return "box";
    case ResizeFilter::kBilinear:
      return "bilinear";
    case ResizeFilter::kBicubic:
      return "bicubic";
    case ResizeFilter::kHamming:
      return "hamming";
    case ResizeFilter::kLanczos:
      return "lanczos";
  }
  return "";
}

ImageSize to_size(const std::pair<size_t, size_t>& size) { return {size.first, size.second}; }

ImageTransform make_transform(const std::optional<std::array<double, 4>>& random_crop,
                              const std::optional<std::array<size_t, 4>>& box,
                              const std::optional<size_t>& shorter,
                              const std::optional<size_t>& max_size,
                              const std::optional<std::pair<size_t, size_t>>& exact,
                              const std::optional<std::pair<size_t, size_t>>& cover,
                              const std::optional<std::pair<size_t, size_t>>& fit,
                              const std::optional<std::pair<size_t, size_t>>& center_crop,
                              const std::array<uint8_t, 3>& fill, double horizontal_flip,
                              double vertical_flip, Interpolation filter, ResizeOrder pass_order) {
  ImageTransform transform;
  if (random_crop) {
    const auto& [low, high, thin, wide] = *random_crop;
    transform.random_crop = CropRange{low, high, thin, wide};
  }
  if (box) transform.box = CropBox{(*box)[0], (*box)[1], (*box)[2], (*box)[3]};
  if (shorter) {
    transform.scale = ImageTransform::Scale::kShorter;
    transform.shorter = *shorter;
    transform.max_size = max_size;
  }
  if (exact) {
    transform.scale = ImageTransform::Scale::kExact;
    transform.exact = to_size(*exact);
  }
  if (cover) {
    transform.scale = ImageTransform::Scale::kCover;
    transform.exact = to_size(*cover);
  }
  if (fit) {
    transform.scale = ImageTransform::Scale::kFit;
    transform.exact = to_size(*fit);
  }
  if (center_crop) transform.center_crop = to_size(*center_crop);
  transform.fill = fill;
  transform.horizontal_flip = horizontal_flip;
  transform.vertical_flip = vertical_flip;
  transform.filter = filter_of(filter);
  transform.random_filter = filter == Interpolation::kRandom;
  transform.order = pass_order;
  validate(transform);
  return transform;
}

Job make_job(std::shared_ptr<Source> source, const ImageTransform& transform, bool planar,
             std::shared_ptr<Recipe> recipe, const std::optional<std::pair<size_t, size_t>>& output,
             bool any_size, size_t channels, const std::optional<NormalizeSpec>& normalize,
             DecodeMode decode, bool pad_truncated, uint64_t pixel_limit, uint64_t large_pixels,
             const MappedSeekFiles* seek_indices, bool upright, std::vector<float> table,
             bool own_sizes, const std::optional<Following>& following,
             std::vector<uint16_t> classes, bool wide) {
  auto job = std::make_shared<ImageJob>();
  job->source = std::move(source);
  job->transform = transform;
  job->recipe = std::move(recipe);
  if (output) job->output_size = to_size(*output);
  job->channels = channels;
  job->jpeg.check_below = decode == DecodeMode::kWhole;
  job->approximate = decode == DecodeMode::kFast;
  job->jpeg.truncated = pad_truncated ? Truncated::kPad : Truncated::kError;
  job->jpeg.pixel_limit = pixel_limit;
  job->jpeg.work_limit = most_jpeg_work(pixel_limit);
  job->large_pixels = large_pixels;
  job->upright = upright;
  job->own_sizes = own_sizes;
  if (seek_indices != nullptr) job->seek_indices = seek_indices->files;
  job->output = planar ? ImageJob::Output::kNchwBytes : ImageJob::Output::kNhwcBytes;
  if (any_size) job->output = ImageJob::Output::kAnySize;
  if (normalize) {
    job->output = ImageJob::Output::kNormalized;
    job->normalize = *normalize;
  }
  if (!table.empty()) {
    job->output = ImageJob::Output::kLookedUp;
    job->table = std::move(table);
    job->table_layout = planar ? Layout::kNchw : Layout::kNhwc;
  }
  job->following = following;
  if (following && following->mask && !any_size) {
    job->output = wide ? ImageJob::Output::kIndices16 : ImageJob::Output::kIndices8;
    if (!classes.empty()) {
      job->classes = std::make_shared<const std::vector<uint16_t>>(std::move(classes));
    }
  }
  validate(*job);
  return job;
}

/// Pillow's numbers of them, and torch's nearest behind these.
constexpr const char* kResamplings[] = {"nearest", "lanczos", "bilinear",     "bicubic",
                                        "box",     "hamming", "torch_nearest"};
static_assert(sizeof(kResamplings) / sizeof(kResamplings[0]) == kTorchNearest + 1);

Following make_following(uint32_t factor, std::optional<int> resampling, bool mask) {
  if (factor == 0) throw InvalidArgument("a picture of no size beside another one");
  if (resampling && (*resampling < 0 || *resampling > kTorchNearest)) {
    throw InvalidArgument("resampling " + std::to_string(*resampling) + "; there are 0 to " +
                          std::to_string(kTorchNearest));
  }
  if (mask && resampling != kTorchNearest) {
    throw InvalidArgument("a mask follows by torch's nearest");
  }
  return Following{factor, resampling, mask};
}

py::dict to_dict(const SampleGeometry& found) {
  py::dict result;
  result["box"] = py::make_tuple(found.box.left, found.box.top, found.box.width, found.box.height);
  result["hflip"] = found.horizontal_flip;
  result["vflip"] = found.vertical_flip;
  result["interpolation"] = name_of(found.filter);
  return result;
}

std::tuple<py::bytearray, std::pair<size_t, size_t>, std::string> picture(
    const ImageJob& job, uint64_t index, uint64_t seed, const std::optional<uint64_t>& sample,
    uint32_t number) {
  const Canvas* made = nullptr;
  uint64_t large = 0;
  {
    const WithoutGil unlocked;
    made = &own_decoder().picture(job, index, SampleKey{sample.value_or(index), seed}, number);
  }
  const auto [height, width] = made->size();
  auto copy = py::reinterpret_steal<py::bytearray>(
      PyByteArray_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(made->bytes())));
  if (!copy) {
    const py::error_already_set error;
    {
      const WithoutGil unlocked;
      own_decoder().give_back();
    }
    throw error;
  }
  char* const to = PyByteArray_AS_STRING(copy.ptr());
  {
    const WithoutGil unlocked;  // a large picture takes a while, and nobody else knows the copy yet
    std::memcpy(to, made->pixels(), made->bytes());
    large = own_decoder().large();
    own_decoder().give_back();
  }
  return {std::move(copy),
          {height, width},
          large > 0 ? words_of_large(large, job.large_pixels) : std::string()};
}

py::dict draw(const ImageJob& job, uint64_t index, uint64_t seed,
              const std::optional<std::pair<size_t, size_t>>& size,
              const std::optional<uint64_t>& sample, uint32_t number) {
  const SampleKey key{sample.value_or(index), seed};
  SampleDraw drawn;
  ImageSize picture;
  {
    const WithoutGil unlocked;
    if (size) {
      picture = to_size(*size);
      drawn = draw_sample(job, picture, key.sample, seed, number);
    } else {
      drawn = own_decoder().draw(job, index, key, number);
      picture = own_decoder().size();
    }
  }
  py::dict result = to_dict(drawn.geometry);
  if (job.following && job.following->resampling) {
    result["interpolation"] = kResamplings[*job.following->resampling];
  }
  result["size"] = py::make_tuple(picture.height, picture.width);
  result["scaled"] = py::make_tuple(drawn.geometry.scaled.height, drawn.geometry.scaled.width);
  py::list operations;
  for (const Operation& operation : drawn.operations) {
    operations.append(py::make_tuple(name_of(operation.kind), operation.numbers));
  }
  result["operations"] = operations;
  return result;
}

}  // namespace

void register_image_job(py::module_& module) {
  Enum<DecodeMode>::bind(
      module, "DecodeMode", "How much of a picture is decoded, and how.",
      {{"EXACT", DecodeMode::kExact}, {"WHOLE", DecodeMode::kWhole}, {"FAST", DecodeMode::kFast}});
  Enum<Interpolation>::bind(module, "Interpolation",
                            "RANDOM: bilinear or bicubic, drawn for each picture.",
                            {{"BOX", Interpolation::kBox},
                             {"BILINEAR", Interpolation::kBilinear},
                             {"BICUBIC", Interpolation::kBicubic},
                             {"HAMMING", Interpolation::kHamming},
                             {"LANCZOS", Interpolation::kLanczos},
                             {"RANDOM", Interpolation::kRandom}});
  py::class_<ImageTransform>(module, "ImageTransform",
                             "random crop (scale and ratio ranges) or `box` (left, top, width, "
                             "height), resize (`shorter`, `exact`, `cover` or `fit`), centre crop, "
                             "flips. Sizes are (height, width).")
      .def(py::init(&make_transform), py::kw_only(), py::arg("random_crop") = py::none(),
           py::arg("box") = py::none(), py::arg("shorter") = py::none(),
           py::arg("max_size") = py::none(), py::arg("exact") = py::none(),
           py::arg("cover") = py::none(), py::arg("fit") = py::none(),
           py::arg("center_crop") = py::none(), py::arg("fill") = std::array<uint8_t, 3>{},
           py::arg("horizontal_flip") = 0.0, py::arg("vertical_flip") = 0.0,
           py::arg_v("filter", Interpolation::kBilinear, "Interpolation.BILINEAR"),
           py::arg_v("pass_order", ResizeOrder::kPillow13, "PassOrder.PILLOW13"))
      .def(
          "geometry",
          [](const ImageTransform& transform, size_t height, size_t width, uint64_t index,
             uint64_t seed) {
            return to_dict(draw_geometry(transform, ImageSize{height, width}, seed, index));
          },
          py::kw_only(), py::arg("height"), py::arg("width"), py::arg("index"), py::arg("seed"),
          "What becomes of a picture of that size: box (left, top, width, height), hflip, vflip, "
          "interpolation.")
      .def_property_readonly("output", [](const ImageTransform& transform) {
        const std::optional<ImageSize> size = transform.output();
        return size ? py::object(py::make_tuple(size->height, size->width)) : py::none();
      });

  py::class_<Following>(module, "Following",
                        "How a picture follows another one of its sample: `factor` times as long "
                        "edges, Pillow's `resampling` or 6, torch's nearest, in place of the "
                        "transform's; a `mask` of indices.")
      .def(py::init(&make_following), py::kw_only(), py::arg("factor") = 1,
           py::arg("resampling") = py::none(), py::arg("mask") = false);

  py::class_<ImageJob, Job>(module, "ImageJob", "What one loader wants of its pictures.")
      .def(py::init(&make_job), py::kw_only(), py::arg("source"), py::arg("transform"),
           py::arg("planar"), py::arg("recipe") = nullptr, py::arg("output") = py::none(),
           py::arg("any_size") = false, py::arg("channels") = 3, py::arg("normalize") = py::none(),
           py::arg_v("decode", DecodeMode::kExact, "DecodeMode.EXACT"),
           py::arg("pad_truncated") = false, py::arg("pixel_limit") = kPillowPixelLimit,
           py::arg("large_pixels") = kPillowPixelLimit / 2, py::arg("seek_indices") = nullptr,
           py::arg("upright") = false, py::arg("table") = std::vector<float>(),
           py::arg("own_sizes") = false, py::arg("following") = py::none(),
           py::arg("classes") = std::vector<uint16_t>(), py::arg("wide") = false,
           py::keep_alive<1, 2>(), py::keep_alive<1, 14>())
      .def_property_readonly("sample_bytes", &ImageJob::sample_bytes)
      .def(
          "over",
          [](const ImageJob& job, std::shared_ptr<Source> source) {
            auto made = std::make_shared<ImageJob>(job);
            made->source = std::move(source);
            validate(*made);
            return made;
          },
          py::arg("source"), py::keep_alive<0, 1>(), py::keep_alive<0, 2>(),
          "The same job for another source.")
      .def("picture", &picture, py::arg("index"), py::arg("seed"), py::arg("sample") = py::none(),
           py::arg("number") = 0,
           "With any_size: RGB bytes of picture `number` of a sample, their (height, width), and "
           "what to warn of if it is large, or ''. The calling thread makes them. `sample`: what "
           "it is drawn by; None: the index.")
      .def("draw", &draw, py::arg("index"), py::arg("seed"), py::arg("size") = py::none(),
           py::arg("sample") = py::none(), py::arg("number") = 0,
           "What is drawn for picture `number` of a sample whose picture has this (height, width); "
           "None: what its header says. A dict as ImageTransform.geometry has it, with `size`, "
           "that of the picture, `scaled`, the (height, width) after the resize, and "
           "`operations`, the recipe's (name, numbers), one after the other. `sample`: what it "
           "is drawn by; None: the index.");
}

}  // namespace fastloader::bindings
