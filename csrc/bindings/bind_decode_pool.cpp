#include <pybind11/stl.h>

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "bindings/dlpack.h"
#include "bindings/gil.h"
#include "bindings/register.h"
#include "image/jpeg/scans.h"
#include "pipeline/buffer_pool.h"
#include "pipeline/decode_pool.h"
#include "pipeline/reservation.h"
#include "source/delayed_source.h"
#include "source/folder_source.h"
#include "source/memory_source.h"

namespace py = pybind11;

namespace fastloader::bindings {
namespace {

using Bytes = py::buffer;
using Job = std::shared_ptr<ImageJob>;

std::shared_ptr<FolderSource> make_folder(const Bytes& paths, const Bytes& ends) {
  const py::buffer_info text = paths.request();
  const py::buffer_info numbers = ends.request();
  if (text.itemsize != 1 || numbers.itemsize != 8 || text.ndim != 1 || numbers.ndim != 1 ||
      (text.size > 1 && text.strides[0] != 1) || (numbers.size > 1 && numbers.strides[0] != 8)) {
    throw InvalidArgument(
        "a folder source takes bytes and one 64-bit end per file, both without gaps");
  }
  return std::make_shared<FolderSource>(
      static_cast<const char*>(text.ptr), static_cast<uint64_t>(text.size),
      static_cast<const uint64_t*>(numbers.ptr), static_cast<uint64_t>(numbers.size));
}

/// The numbers of a one-dimensional array of 64-bit integers, which the caller keeps alive.
const uint64_t* numbers_of(const py::buffer_info& array) {
  if (array.itemsize != 8 || array.ndim != 1 || (array.size > 1 && array.strides[0] != 8)) {
    throw InvalidArgument("a memory source takes contiguous arrays of 64-bit numbers");
  }
  return static_cast<const uint64_t*>(array.ptr);
}

std::shared_ptr<MemorySource> make_memory(const Bytes& addresses, const Bytes& sizes) {
  const py::buffer_info where = addresses.request();
  const py::buffer_info size = sizes.request();
  if (where.size != size.size) throw InvalidArgument("as many sizes as addresses are needed");
  return std::make_shared<MemorySource>(numbers_of(where), numbers_of(size),
                                        static_cast<uint64_t>(where.size));
}

ImageSize to_size(const std::pair<size_t, size_t>& size) { return {size.first, size.second}; }

ImageTransform make_transform(const std::optional<std::array<double, 4>>& random_crop,
                              const std::optional<size_t>& shorter,
                              const std::optional<size_t>& max_size,
                              const std::optional<std::pair<size_t, size_t>>& exact,
                              const std::optional<std::pair<size_t, size_t>>& cover,
                              const std::optional<std::pair<size_t, size_t>>& fit,
                              const std::optional<std::pair<size_t, size_t>>& center_crop,
                              const std::array<uint8_t, 3>& fill, double horizontal_flip,
                              double vertical_flip, const std::string& filter,
                              const std::string& pass_order) {
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
  if (filter == "bilinear") {
    transform.filter = ResizeFilter::kBilinear;
  } else if (filter == "bicubic") {
    transform.filter = ResizeFilter::kBicubic;
  } else if (filter == "random") {
    transform.random_filter = true;
  } else {
    throw InvalidArgument("interpolation " + filter + "; bilinear, bicubic and random are native");
  }
  if (pass_order == "pillow13") {
    transform.order = ResizeOrder::kPillow13;
  } else if (pass_order == "pillow12.2") {
    transform.order = ResizeOrder::kPillow12_2;
  } else if (pass_order == "horizontal first") {
    transform.order = ResizeOrder::kHorizontalFirst;
  } else {
    throw InvalidArgument("pass_order " + pass_order +
                          "; pillow13, pillow12.2 and horizontal first are known");
  }
  validate(transform);
  return transform;
}

Job make_job(std::shared_ptr<Source> source, const ImageTransform& transform, bool planar,
             const std::optional<NormalizeSpec>& normalize, const std::string& decode,
             bool pad_truncated, uint64_t pixel_limit, uint64_t large_pixels) {
  auto job = std::make_shared<ImageJob>();
  job->source = std::move(source);
  job->transform = transform;
  if (decode == "whole") {
    job->jpeg.check_below = true;
  } else if (decode == "fast") {
    job->approximate = true;
  } else if (decode != "exact") {
    throw InvalidArgument("decode=" + decode + "; exact, whole and fast are known");
  }
  job->jpeg.truncated = pad_truncated ? Truncated::kPad : Truncated::kError;
  job->jpeg.pixel_limit = pixel_limit;
  job->jpeg.work_limit = most_jpeg_work(pixel_limit);
  job->large_pixels = large_pixels;
  job->output = planar ? ImageJob::Output::kNchwBytes : ImageJob::Output::kNhwcBytes;
  if (normalize) {
    job->output = ImageJob::Output::kNormalized;
    job->normalize = *normalize;
  }
  validate(*job);
  return job;
}

/// What Python holds.
struct Batch {
  std::shared_ptr<DecodeBatch> decode;
  bool done = false;
};

/// Waits for a thread that is at one of its samples.
struct DeleteWithoutGil {
  void operator()(Batch* batch) const {
    const WithoutGil unlocked;
    if (!batch->done) DecodePool::shared().cancel(*batch->decode);
    delete batch;
  }
};

using BatchPtr = std::unique_ptr<Batch, DeleteWithoutGil>;

/// Where the pixels go: recycled memory, or straight into a slot of the ring.
using Destination = std::variant<std::shared_ptr<BufferPool>, std::shared_ptr<Reservation>>;

std::shared_ptr<std::byte> memory_in(const Destination& destination, size_t bytes,
                                     const WithoutGil& /*unlocked*/) {
  if (const auto* pool = std::get_if<std::shared_ptr<BufferPool>>(&destination)) {
    return (*pool)->share(bytes);
  }
  const auto& slot = std::get<std::shared_ptr<Reservation>>(destination);
  if (bytes > slot->bytes()) {
    throw InvalidArgument("a batch of " + std::to_string(bytes) +
                          " bytes of pixels in a slot that was reserved for " +
                          std::to_string(slot->bytes()));
  }
  return {slot, slot->data()};
}

BatchPtr submit(const Job& job, const std::shared_ptr<DecodeQuota>& quota,
                std::vector<uint64_t> indices, std::vector<uint64_t> seeds,
                const Destination& memory) {
  if (job == nullptr || quota == nullptr ||
      std::visit([](const auto& held) { return held == nullptr; }, memory)) {
    throw InvalidArgument("a batch needs a job, a quota and memory");
  }
  const WithoutGil unlocked;  // threads may have to be started, and are to be woken
  // Not a BatchPtr before it is submitted: there is nothing to cancel, and no GIL to let go of.
  auto batch = std::make_unique<Batch>();
  batch->decode = std::make_shared<DecodeBatch>(
      job, quota, std::move(indices), std::move(seeds),
      [&](size_t bytes) { return memory_in(memory, bytes, unlocked); });
  DecodePool& pool = DecodePool::shared();
  pool.grow(pool.threads(*quota));
  pool.submit(batch->decode);
  return BatchPtr(batch.release());
}

bool wait(Batch& batch) {
  while (!batch.done) {
    DecodePool::Wait waited;
    {
      const WithoutGil unlocked;
      waited = DecodePool::shared().wait(*batch.decode,
                                         DecodePool::Clock::now() + std::chrono::milliseconds(100));
    }
    if (waited == DecodePool::Wait::kCancelled) return false;
    batch.done = waited == DecodePool::Wait::kDone;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  }
  return true;
}

/// What only the consumer may touch, and only once the threads are through with it.
DecodeBatch& finished(const Batch& batch) {
  if (!batch.done) throw InvalidArgument("the batch is not done yet: call wait() first");
  return *batch.decode;
}

/// The same, of one that has that sample.
DecodeBatch& finished(const Batch& batch, size_t position) {
  DecodeBatch& decode = finished(batch);
  if (position >= decode.size()) {
    throw InvalidArgument("sample " + std::to_string(position) + " of a batch of " +
                          std::to_string(decode.size()));
  }
  return decode;
}

const char* kind_name(DecodeBatch::Failure::Kind kind) {
  using Kind = DecodeBatch::Failure::Kind;
  if (kind == Kind::kRefused) return "refused";
  return kind == Kind::kLarge ? "large" : "failed";
}

py::list failures(const Batch& batch) {
  py::list result;
  for (const DecodeBatch::Failure& failure : finished(batch).failures()) {
    result.append(
        py::make_tuple(failure.position, path_text(failure.reason), kind_name(failure.kind)));
  }
  return result;
}

py::capsule take(Batch& batch) {
  DecodeBatch& decode = finished(batch);
  decode.sample(0);  // throws when it was taken already
  const ImageJob& job = decode.job();
  const ImageSize size = *job.transform.output();
  const std::array<int64_t, 4> shape = {static_cast<int64_t>(decode.size()), 3,
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
  return tensor_capsule(decode.release_memory(), type, shape, nchw_strides(shape, layout));
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
  result["interpolation"] = found.filter == ResizeFilter::kBicubic ? "bicubic" : "bilinear";
  return result;
}

py::dict times(const DecodeQuota& quota) {
  StageTimes times;
  {
    const WithoutGil unlocked;
    times = DecodePool::shared().times(quota);
  }
  const auto seconds = [](int64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; };
  py::dict result;
  result["pictures"] = times.pictures;
  result["bytes"] = times.bytes;
  result["read"] = seconds(times.read);
  result["decode"] = seconds(times.decode);
  result["finish"] = seconds(times.finish);
  result["looked_at"] = seconds(times.looked_at);
  result["resize"] = seconds(times.resize);
  return result;
}

py::dict geometry(const ImageJob& job, uint64_t index, uint64_t seed) {
  SampleGeometry found;
  {
    const WithoutGil unlocked;
    found = own_decoder().geometry(job, index, seed);
  }
  return to_dict(found);
}

}  // namespace

void register_decode_pool(py::module_& module) {
  py::class_<Source, std::shared_ptr<Source>>(module, "Source", "Where encoded pictures lie.")
      .def("__len__", &Source::size)
      .def(
          "name",
          [](const Source& source, uint64_t index) { return path_text(source.name(index)); },
          py::arg("index"));

  py::class_<MemorySource, Source, std::shared_ptr<MemorySource>>(
      module, "MemorySource",
      "Samples that lie in memory: `sizes[i]` bytes at `addresses[i]`, uint64 arrays that may be "
      "filled in later. Whoever makes it keeps the samples where they are.")
      .def(py::init(&make_memory), py::arg("addresses"), py::arg("sizes"), py::keep_alive<1, 2>(),
           py::keep_alive<1, 3>());

  py::class_<DelayedSource, Source, std::shared_ptr<DelayedSource>>(
      module, "DelayedSource", "Another source on a slow disk, for tests.")
      .def(py::init([](std::shared_ptr<Source> source, double seconds) {
             return std::make_shared<DelayedSource>(
                 std::move(source), std::chrono::microseconds(static_cast<int64_t>(seconds * 1e6)));
           }),
           py::arg("source"), py::arg("seconds"), py::keep_alive<1, 2>());

  py::class_<FolderSource, Source, std::shared_ptr<FolderSource>>(
      module, "FolderSource", "Files whose paths lie one after the other in `paths`.")
      .def(py::init(&make_folder), py::arg("paths"), py::arg("ends"), py::keep_alive<1, 2>(),
           py::keep_alive<1, 3>());

  py::class_<ImageTransform>(module, "ImageTransform",
                             "random crop (scale and ratio ranges), resize (`shorter`, `exact`, "
                             "`cover` or `fit`), centre crop, flips. Sizes are (height, width).")
      .def(py::init(&make_transform), py::kw_only(), py::arg("random_crop") = py::none(),
           py::arg("shorter") = py::none(), py::arg("max_size") = py::none(),
           py::arg("exact") = py::none(), py::arg("cover") = py::none(),
           py::arg("fit") = py::none(), py::arg("center_crop") = py::none(),
           py::arg("fill") = std::array<uint8_t, 3>{}, py::arg("horizontal_flip") = 0.0,
           py::arg("vertical_flip") = 0.0, py::arg("filter") = "bilinear",
           py::arg("pass_order") = "pillow13")
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
        const ImageSize size = *transform.output();
        return py::make_tuple(size.height, size.width);
      });

  py::class_<ImageJob, Job>(module, "ImageJob", "What one loader wants of its pictures.")
      .def(py::init(&make_job), py::kw_only(), py::arg("source"), py::arg("transform"),
           py::arg("planar"), py::arg("normalize") = py::none(), py::arg("decode") = "exact",
           py::arg("pad_truncated") = false, py::arg("pixel_limit") = kPillowPixelLimit,
           py::arg("large_pixels") = kPillowPixelLimit / 2, py::keep_alive<1, 2>())
      .def_property_readonly("sample_bytes", &ImageJob::sample_bytes)
      .def("geometry", &geometry, py::arg("index"), py::arg("seed"),
           "The box (left, top, width, height), flips and interpolation of a sample, from its "
           "header.");

  py::class_<DecodeQuota, std::shared_ptr<DecodeQuota>>(
      module, "DecodeQuota", "How many threads of the pool may work for one loader at a time.")
      .def(py::init<size_t>(), py::arg("threads"))
      .def_property(
          "threads",
          [](const DecodeQuota& quota) {
            const WithoutGil unlocked;
            return DecodePool::shared().threads(quota);
          },
          [](DecodeQuota& quota, size_t threads) {
            const WithoutGil unlocked;
            DecodePool::shared().set_threads(quota, threads);
          },
          "May be changed at any time; at least 1.")
      .def(
          "times", &times,
          "What the threads have done for it: pictures, encoded bytes, and thread seconds at read, "
          "decode (and resize) and finish. Of pictures whose rows were timed: looked_at, their "
          "share "
          "of decode, and resize, its part of that.");

  py::class_<Batch, BatchPtr>(module, "DecodeBatch",
                              "A batch in the pool; dropping it cancels what was not begun.")
      .def(py::init(&submit), py::kw_only(), py::arg("job"), py::arg("quota"), py::arg("indices"),
           py::arg("seeds"), py::arg("memory"), py::keep_alive<1, 2>())
      .def("wait", &wait,
           "Blocks until every sample was tried; looks for signals every 100 ms. False: stopped.")
      .def(
          "ready",
          [](const Batch& batch) {
            if (batch.done) return true;
            const WithoutGil unlocked;
            return DecodePool::shared().done(*batch.decode);
          },
          "Whether wait() would return at once.")
      .def(
          "stop",
          [](Batch& batch) {
            const WithoutGil unlocked;
            DecodePool::shared().stop(*batch.decode);
          },
          "No further sample is begun, and wait() ends. Any thread.")
      .def(
          "failures", &failures,
          "[(position, reason, kind)]; after wait(). 'failed': another decoder may know how; "
          "'refused': it would take too much, whoever decodes it; 'large': it is there, and larger "
          "than `large_pixels`.")
      .def("take", &take,
           "The pixels as a DLPack capsule of shape (N, 3, H, W), once; after wait().")
      .def(
          "transform_pixels",
          [](Batch& batch, size_t position, uintptr_t pixels, size_t height, size_t width,
             std::optional<uint64_t> index) {
            DecodeBatch& decode = finished(batch, position);
            const WithoutGil unlocked;
            own_decoder().transform(decode.job(), index.value_or(decode.index(position)),
                                    decode.seed(position), reinterpret_cast<const uint8_t*>(pixels),
                                    ImageSize{height, width}, decode.sample(position));
          },
          py::arg("position"), py::kw_only(), py::arg("pixels"), py::arg("height"),
          py::arg("width"), py::arg("index") = py::none(),
          "Finishes a failed sample from RGB pixels that somebody else decoded; `index`: of "
          "another sample, which these are.")
      .def(
          "decode_other",
          [](Batch& batch, size_t position, uint64_t index, uint64_t seed) {
            DecodeBatch& decode = finished(batch, position);
            const WithoutGil unlocked;
            own_decoder().decode(decode.job(), index, seed, decode.sample(position),
                                 &decode.stopped());
          },
          py::arg("position"), py::kw_only(), py::arg("index"), py::arg("seed"),
          "Puts another sample in the place of a failed one.");

  module.def("decode_threads", [] {
    const WithoutGil unlocked;
    return DecodePool::shared().threads();
  });
  module.def(
      "decode_cpu_seconds",
      [] {
        const WithoutGil unlocked;
        return static_cast<double>(DecodePool::shared().cpu_ns()) * 1e-9;
      },
      "Processor time that the decode threads of this process have used.");
  module.def(
      "lower_decode_priority",
      [] {
        const WithoutGil unlocked;
        DecodePool::shared().lower_priority();
      },
      "The decode threads of this process yield to its others from now on.");
  module.def(
      "decode_scratch_bytes",
      [] {
        const WithoutGil unlocked;
        return DecodePool::shared().scratch_bytes();
      },
      "Memory that the decode threads of this process keep from picture to picture.");
}

}  // namespace fastloader::bindings
