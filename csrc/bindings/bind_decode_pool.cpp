#include <pybind11/stl.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "bindings/dlpack.h"
#include "bindings/register.h"
#include "pipeline/decode_pool.h"
#include "source/folder_source.h"

namespace py = pybind11;

namespace fastloader::bindings {
namespace {

using Bytes = py::buffer;
using Job = std::shared_ptr<ImageJob>;

std::shared_ptr<FolderSource> make_folder(const Bytes& paths, const Bytes& ends) {
  const py::buffer_info text = paths.request();
  const py::buffer_info numbers = ends.request();
  if (text.itemsize != 1 || numbers.itemsize != 8 || text.ndim != 1 || numbers.ndim != 1) {
    throw InvalidArgument("a folder source takes bytes and one 64-bit end per file");
  }
  return std::make_shared<FolderSource>(
      static_cast<const char*>(text.ptr), static_cast<uint64_t>(text.size),
      static_cast<const uint64_t*>(numbers.ptr), static_cast<uint64_t>(numbers.size));
}

ImageSize to_size(const std::pair<size_t, size_t>& size) { return {size.first, size.second}; }

ImageTransform make_transform(const std::optional<std::array<double, 4>>& random_crop,
                              const std::optional<size_t>& shorter,
                              const std::optional<size_t>& max_size,
                              const std::optional<std::pair<size_t, size_t>>& exact,
                              const std::optional<std::pair<size_t, size_t>>& center_crop,
                              double horizontal_flip, double vertical_flip,
                              const std::string& filter) {
  ImageTransform transform;
  if (random_crop) {
    const auto& [low, high, thin, wide] = *random_crop;
    transform.random_crop = CropRange{low, high, thin, wide};
  }
  if (shorter) {
    transform.scale = ImageTransform::Scale::kShorter;
    transform.shorter = *shorter;
    transform.max_size = max_size;
  }
  if (exact) {
    transform.scale = ImageTransform::Scale::kExact;
    transform.exact = to_size(*exact);
  }
  if (center_crop) transform.center_crop = to_size(*center_crop);
  transform.horizontal_flip = horizontal_flip;
  transform.vertical_flip = vertical_flip;
  if (filter == "bilinear") {
    transform.filter = ResizeFilter::kBilinear;
  } else if (filter == "bicubic") {
    transform.filter = ResizeFilter::kBicubic;
  } else {
    throw InvalidArgument("interpolation " + filter + "; bilinear and bicubic are native");
  }
  validate(transform);
  return transform;
}

Job make_job(std::shared_ptr<FolderSource> source, const ImageTransform& transform, bool planar,
             const std::optional<NormalizeSpec>& normalize, bool pad_truncated,
             uint64_t pixel_limit) {
  auto job = std::make_shared<ImageJob>();
  job->source = std::move(source);
  job->transform = transform;
  job->jpeg.truncated = pad_truncated ? Truncated::kPad : Truncated::kError;
  job->jpeg.pixel_limit = pixel_limit;
  job->output = planar ? ImageJob::Output::kNchwBytes : ImageJob::Output::kNhwcBytes;
  if (normalize) {
    job->output = ImageJob::Output::kNormalized;
    job->normalize = *normalize;
  }
  validate(*job);
  return job;
}

/// What Python holds: dropping it may wait for a thread that is at one of its samples.
struct Batch {
  std::shared_ptr<DecodeBatch> decode;
  bool done = false;

  ~Batch() {
    if (!done) DecodePool::shared().cancel(*decode);
  }
};

struct DeleteWithoutGil {
  void operator()(Batch* batch) const {
    const py::gil_scoped_release unlocked;
    delete batch;
  }
};

using BatchPtr = std::unique_ptr<Batch, DeleteWithoutGil>;

BatchPtr submit(const Job& job, const std::shared_ptr<DecodeQuota>& quota,
                std::vector<uint64_t> indices, std::vector<uint64_t> seeds,
                const std::shared_ptr<BufferPool>& memory) {
  if (job == nullptr || quota == nullptr || memory == nullptr) {
    throw InvalidArgument("a batch needs a job, a quota and memory");
  }
  auto batch = std::make_unique<Batch>();
  batch->done = true;  // until it is submitted there is nothing to cancel
  batch->decode =
      std::make_shared<DecodeBatch>(job, quota, std::move(indices), std::move(seeds), memory);
  DecodePool::shared().grow(quota->threads);
  DecodePool::shared().submit(batch->decode);
  batch->done = false;
  return BatchPtr(batch.release());
}

void wait(Batch& batch) {
  while (!batch.done) {
    {
      const py::gil_scoped_release unlocked;
      batch.done = DecodePool::shared().wait(
          *batch.decode, DecodePool::Clock::now() + std::chrono::milliseconds(100));
    }
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  }
}

py::list failures(const Batch& batch) {
  py::list result;
  for (const DecodeBatch::Failure& failure : batch.decode->failures()) {
    result.append(py::make_tuple(failure.position, path_text(failure.reason)));
  }
  return result;
}

py::capsule take(Batch& batch) {
  if (!batch.done) throw InvalidArgument("the batch is not done yet: call wait() first");
  batch.decode->sample(0);  // throws when it was taken already
  const ImageJob& job = batch.decode->job();
  const ImageSize size = *job.transform.output();
  const std::array<int64_t, 4> shape = {static_cast<int64_t>(batch.decode->size()), 3,
                                        static_cast<int64_t>(size.height),
                                        static_cast<int64_t>(size.width)};
  dlpack::DataType type{dlpack::kUnsigned, 8, 1};
  Layout layout = Layout::kNchw;
  if (job.output == ImageJob::Output::kNormalized) {
    type = dlpack_type(job.normalize.out_type);
    layout = job.normalize.out_layout;
  } else if (job.output == ImageJob::Output::kNhwcBytes) {
    layout = Layout::kNhwc;
  }
  return pooled_capsule(batch.decode->release_buffer(), type, shape, nchw_strides(shape, layout));
}

/// Of the calling thread, for samples that Python hands over one by one.
SampleDecoder& own_decoder() {
  thread_local SampleDecoder decoder;
  return decoder;
}

py::dict to_dict(const SampleGeometry& found) {
  py::dict result;
  result["box"] = py::make_tuple(found.box.left, found.box.top, found.box.width, found.box.height);
  result["hflip"] = found.horizontal_flip;
  result["vflip"] = found.vertical_flip;
  return result;
}

py::dict geometry(const ImageJob& job, uint64_t index, uint64_t seed) {
  SampleGeometry found;
  {
    const py::gil_scoped_release unlocked;
    found = own_decoder().geometry(job, index, seed);
  }
  return to_dict(found);
}

}  // namespace

void register_decode_pool(py::module_& module) {
  py::class_<FolderSource, std::shared_ptr<FolderSource>>(
      module, "FolderSource", "Files whose paths lie one after the other in `paths`.")
      .def(py::init(&make_folder), py::arg("paths"), py::arg("ends"), py::keep_alive<1, 2>(),
           py::keep_alive<1, 3>())
      .def(
          "name",
          [](const FolderSource& source, uint64_t index) { return path_text(source.name(index)); },
          py::arg("index"))
      .def("__len__", &FolderSource::size);

  py::class_<ImageTransform>(module, "ImageTransform",
                             "random crop (scale and ratio ranges), resize, centre crop, flips. "
                             "Sizes are (height, width).")
      .def(py::init(&make_transform), py::kw_only(), py::arg("random_crop") = py::none(),
           py::arg("shorter") = py::none(), py::arg("max_size") = py::none(),
           py::arg("exact") = py::none(), py::arg("center_crop") = py::none(),
           py::arg("horizontal_flip") = 0.0, py::arg("vertical_flip") = 0.0,
           py::arg("filter") = "bilinear")
      .def(
          "geometry",
          [](const ImageTransform& transform, size_t height, size_t width, uint64_t index,
             uint64_t seed) {
            return to_dict(draw_geometry(transform, ImageSize{height, width}, seed, index));
          },
          py::kw_only(), py::arg("height"), py::arg("width"), py::arg("index"), py::arg("seed"),
          "What becomes of a picture of that size: box (left, top, width, height), hflip, vflip.")
      .def_property_readonly("output", [](const ImageTransform& transform) {
        const ImageSize size = *transform.output();
        return py::make_tuple(size.height, size.width);
      });

  py::class_<ImageJob, Job>(module, "ImageJob", "What one loader wants of its pictures.")
      .def(py::init(&make_job), py::kw_only(), py::arg("source"), py::arg("transform"),
           py::arg("planar"), py::arg("normalize") = py::none(), py::arg("pad_truncated") = false,
           py::arg("pixel_limit") = kPillowPixelLimit, py::keep_alive<1, 2>())
      .def_property_readonly("sample_bytes", &ImageJob::sample_bytes)
      .def("geometry", &geometry, py::arg("index"), py::arg("seed"),
           "The box (left, top, width, height) and flips of a sample, from its header.");

  py::class_<DecodeQuota, std::shared_ptr<DecodeQuota>>(
      module, "DecodeQuota", "How many threads of the pool may work for one loader at a time.")
      .def(py::init<size_t>(), py::arg("threads"))
      .def_readonly("threads", &DecodeQuota::threads);

  py::class_<Batch, BatchPtr>(module, "DecodeBatch",
                              "A batch in the pool; dropping it cancels what was not begun.")
      .def(py::init(&submit), py::kw_only(), py::arg("job"), py::arg("quota"), py::arg("indices"),
           py::arg("seeds"), py::arg("memory"), py::keep_alive<1, 2>())
      .def("wait", &wait, "Blocks until every sample was tried; looks for signals every 100 ms.")
      .def("failures", &failures, "[(position, reason)]; after wait().")
      .def("take", &take,
           "The pixels as a DLPack capsule of shape (N, 3, H, W), once; after wait().")
      .def(
          "transform_pixels",
          [](Batch& batch, size_t position, uintptr_t pixels, size_t height, size_t width) {
            const py::gil_scoped_release unlocked;
            DecodeBatch& decode = *batch.decode;
            own_decoder().transform(decode.job(), decode.index(position), decode.seed(position),
                                    reinterpret_cast<const uint8_t*>(pixels),
                                    ImageSize{height, width}, decode.sample(position));
          },
          py::arg("position"), py::kw_only(), py::arg("pixels"), py::arg("height"),
          py::arg("width"), "Finishes a failed sample from RGB pixels that somebody else decoded.")
      .def(
          "decode_other",
          [](Batch& batch, size_t position, uint64_t index, uint64_t seed) {
            const py::gil_scoped_release unlocked;
            DecodeBatch& decode = *batch.decode;
            own_decoder().decode(decode.job(), index, seed, decode.sample(position));
          },
          py::arg("position"), py::kw_only(), py::arg("index"), py::arg("seed"),
          "Puts another sample in the place of a failed one.");

  module.def("decode_threads", [] { return DecodePool::shared().threads(); });
}

}  // namespace fastloader::bindings
