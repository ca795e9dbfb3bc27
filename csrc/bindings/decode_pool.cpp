#include <pybind11/stl.h>
#include <sched.h>

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "bindings/decoding.h"
#include "bindings/enum.h"
#include "bindings/gil.h"
#include "bindings/memory.h"
#include "bindings/register.h"
#include "pipeline/buffer_pool.h"
#include "pipeline/decode_pool.h"
#include "pipeline/pinned_pool.h"
#include "pipeline/reservation.h"

namespace py = pybind11;

namespace fastloader::bindings {
namespace {

using Job = std::shared_ptr<ImageJob>;

/// What Python holds.
struct Batch {
  std::shared_ptr<DecodeBatch> decode;
  bool done = false;
  // By view: moved here by its first take(), shared with every capsule.
  std::vector<DecodeBatch::Memory> taken;
  // By view: the tensors into which it is decoded, or None.
  py::object held;
};

/// Waits for a thread that is at one of its samples.
struct DeleteBatch {
  void operator()(Batch* batch) const {
    const py::object held = std::move(batch->held);  // goes last, with the GIL
    const WithoutGil unlocked;
    DecodePool::shared().cancel(*batch->decode);
    delete batch;
  }
};

using BatchPtr = std::unique_ptr<Batch, DeleteBatch>;

/// Where the pixels go: recycled memory, memory that the device reads, or straight into a slot of
/// the ring.
using Destination = std::variant<std::shared_ptr<BufferPool>, std::shared_ptr<PinnedPool>,
                                 std::shared_ptr<Reservation>>;

Allocate memory_in(const Destination& destination) {
  if (const auto* pool = std::get_if<std::shared_ptr<BufferPool>>(&destination)) {
    return (*pool)->sharing();
  }
  if (const auto* pool = std::get_if<std::shared_ptr<PinnedPool>>(&destination)) {
    return (*pool)->sharing();
  }
  const auto& slot = std::get<std::shared_ptr<Reservation>>(destination);
  return [slot](size_t bytes) -> std::shared_ptr<std::byte> {
    if (bytes > slot->bytes()) {
      throw InvalidArgument("a batch of " + std::to_string(bytes) +
                            " bytes of pixels in a slot that was reserved for " +
                            std::to_string(slot->bytes()));
    }
    return {slot, slot->data()};
  };
}

/// Without the GIL: threads may have to be started, and are to be woken.
void submit(Batch& batch, std::vector<DecodeBatch::View> views,
            const std::shared_ptr<DecodeQuota>& quota, std::vector<uint64_t> indices,
            DecodeBatch::Keys keys, const Destination& memory) {
  const WithoutGil unlocked;
  batch.taken.resize(views.size());
  batch.decode = std::make_shared<DecodeBatch>(std::move(views), quota, std::move(indices),
                                               std::move(keys), memory_in(memory));
  DecodePool& pool = DecodePool::shared();
  pool.grow(pool.threads(*quota));
  pool.submit(batch.decode);
}

BatchPtr make_batch(const std::vector<std::pair<std::vector<Job>, uint32_t>>& views,
                    const std::shared_ptr<DecodeQuota>& quota, std::vector<uint64_t> indices,
                    std::vector<uint64_t> samples, std::vector<uint64_t> seeds,
                    std::vector<uint32_t> kinds, const Destination& memory,
                    const std::vector<std::vector<uintptr_t>>& outs, py::object held,
                    std::vector<uint32_t> numbers) {
  if (quota == nullptr || std::visit([](const auto& pool) { return pool == nullptr; }, memory)) {
    throw InvalidArgument("a batch needs a job, a quota and memory");
  }
  std::vector<DecodeBatch::View> wanted;
  for (const auto& [jobs, number] : views) {
    if (jobs.empty()) throw InvalidArgument("a batch needs a job, a quota and memory");
    for (const Job& job : jobs) {
      if (job == nullptr) throw InvalidArgument("a batch needs a job, a quota and memory");
      if (job->output == ImageJob::Output::kAnySize) {
        throw InvalidArgument("pictures of any size are not made in batches");
      }
    }
    wanted.push_back({{jobs.begin(), jobs.end()}, number, nullptr, {}, {}});
  }
  if (!outs.empty() && outs.size() != wanted.size()) {
    throw InvalidArgument("places of " + std::to_string(outs.size()) + " views in a batch of " +
                          std::to_string(wanted.size()));
  }
  for (size_t view = 0; view < outs.size(); ++view) {
    for (const uintptr_t out : outs[view]) {
      wanted[view].outs.push_back(reinterpret_cast<std::byte*>(out));
    }
  }
  if (std::holds_alternative<std::shared_ptr<Reservation>>(memory) &&
      (wanted.size() > 1 || wanted[0].jobs[0]->own_sizes)) {
    throw InvalidArgument("a slot holds one view, of pictures of one size");
  }
  // Not a BatchPtr before it is submitted: there is nothing to cancel, and no GIL to let go of.
  auto batch = std::make_unique<Batch>();
  batch->held = std::move(held);
  submit(
      *batch, std::move(wanted), quota, std::move(indices),
      DecodeBatch::Keys{std::move(samples), std::move(seeds), std::move(kinds), std::move(numbers)},
      memory);
  return BatchPtr(batch.release());
}

bool wait(Batch& batch) {
  while (!batch.done) {
    DecodePool::WaitStatus waited;
    {
      const WithoutGil unlocked;
      waited = DecodePool::shared().wait(*batch.decode,
                                         DecodePool::Clock::now() + std::chrono::milliseconds(100));
    }
    if (waited == DecodePool::WaitStatus::kCancelled) return false;
    batch.done = waited == DecodePool::WaitStatus::kDone;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  }
  return true;
}

/// Returns the batch, which only the consumer may touch once the threads are done with it.
DecodeBatch& finished(const Batch& batch) {
  if (!batch.done) throw InvalidArgument("the batch is not done yet: call wait() first");
  return *batch.decode;
}

/// The same, if the batch has that sample.
DecodeBatch& finished(const Batch& batch, size_t position) {
  DecodeBatch& decode = finished(batch);
  if (position >= decode.size()) {
    throw InvalidArgument("sample " + std::to_string(position) + " of a batch of " +
                          std::to_string(decode.size()));
  }
  return decode;
}

using FailureKind = DecodeBatch::Failure::Kind;

py::list failures(const Batch& batch) {
  py::list result;
  for (const DecodeBatch::Failure& failure : finished(batch).failures()) {
    result.append(py::make_tuple(failure.position, path_text(failure.reason),
                                 Enum<FailureKind>::member(failure.kind)));
  }
  return result;
}

/// A capsule over so many pictures of a job.
py::capsule capsule_of(const ImageJob& job, size_t count, const ImageSize& size,
                       const std::shared_ptr<std::byte>& memory) {
  const std::array<int64_t, 4> shape = {
      static_cast<int64_t>(count), static_cast<int64_t>(job.channels),
      static_cast<int64_t>(size.height), static_cast<int64_t>(size.width)};
  dlpack::DataType type{dlpack::kUnsigned, 8, 1};
  Layout layout = Layout::kNchw;
  if (job.output == ImageJob::Output::kNormalized) {
    type = dlpack_type(job.normalize.out_type);
    layout = job.normalize.out_layout;
  } else if (job.output == ImageJob::Output::kLookedUp) {
    type = dlpack_type(FloatType::kFloat32);
    layout = job.table_layout;
  } else if (job.output == ImageJob::Output::kNhwcBytes) {
    layout = Layout::kNhwc;
  } else if (job.output == ImageJob::Output::kIndices16) {
    type = dlpack::DataType{dlpack::kUnsigned, 16, 1};
  }
  return tensor_capsule(memory, type, shape, nchw_strides(shape, layout));
}

/// The job of a view of a batch that is done.
const ImageJob& job_of(const Batch& batch, size_t view) {
  const DecodeBatch& decode = finished(batch);
  if (view >= batch.taken.size()) {
    throw InvalidArgument("view " + std::to_string(view) + " of a batch of " +
                          std::to_string(batch.taken.size()));
  }
  return decode.job(view);
}

py::capsule take(Batch& batch, size_t view) {
  const ImageJob& job = job_of(batch, view);
  if (job.own_sizes) throw InvalidArgument("the pictures have sizes of their own");
  // Kept for another call: Ctrl-C may come before a tensor was made of the capsule.
  if (batch.taken[view] == nullptr) batch.taken[view] = batch.decode->release_memory(view);
  return capsule_of(job, batch.decode->size(), job.made_size(), batch.taken[view]);
}

py::object take_own(const Batch& batch, size_t position, size_t view) {
  const ImageJob& job = job_of(batch, view);
  if (!job.own_sizes) throw InvalidArgument("the pictures have one size");
  const OwnPicture& picture = finished(batch, position).own(position, view);
  if (picture.memory == nullptr) return py::none();
  return capsule_of(job, 1, picture.size, picture.memory);
}

std::vector<std::pair<size_t, size_t>> sizes(const Batch& batch) {
  std::vector<std::pair<size_t, size_t>> found;
  for (const ImageSize& size : finished(batch).sizes()) found.emplace_back(size.height, size.width);
  return found;
}

void transform_pixels(Batch& batch, size_t position, uintptr_t pixels, size_t height, size_t width,
                      const std::optional<uint64_t>& index, std::optional<uint32_t> kind) {
  DecodeBatch& decode = finished(batch, position);
  const WithoutGil unlocked;
  SampleKey key = decode.key(position);
  key.sample = index.value_or(key.sample);
  const ImageSize size{height, width};
  std::vector<PictureView> views;
  decode.views_of(position, views, kind);
  for (const PictureView& view : views) {
    own_decoder().transform(key, view, reinterpret_cast<const uint8_t*>(pixels), size);
  }
  decode.set_size(position, size);
}

void decode_other(Batch& batch, size_t position, uint64_t index, uint64_t seed, uint32_t kind) {
  DecodeBatch& decode = finished(batch, position);
  const WithoutGil unlocked;
  std::vector<PictureView> views;
  decode.views_of(position, views, kind);
  own_decoder().decode(index, SampleKey{index, seed}, views, &decode.stopped());
  decode.set_size(position, own_decoder().size());
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
  result["files"] = times.files;
  result["waited"] = times.waited;
  result["read"] = seconds(times.read);
  result["decode"] = seconds(times.decode);
  result["recipe"] = seconds(times.recipe);
  result["finish"] = seconds(times.finish);
  result["looked_at"] = seconds(times.looked_at);
  result["resize"] = seconds(times.resize);
  for (size_t i = 0; i < kJpegRefusals; ++i) {
    const std::string why = name_of(static_cast<JpegRefusal>(i));
    result[py::str("jpegs: " + why)] = times.jpegs[i];
  }
  result["indexed"] = times.indexed;
  result["unfit"] = times.unfit;
  return result;
}

std::shared_ptr<DecodeQuota> make_quota(size_t threads, std::optional<bool> read_ahead) {
  auto mode = ReadingNeed::Mode::kAsNeeded;
  if (read_ahead) mode = *read_ahead ? ReadingNeed::Mode::kAlways : ReadingNeed::Mode::kNever;
  return std::make_shared<DecodeQuota>(threads, mode);
}

}  // namespace

void register_decode_pool(py::module_& module) {
  Enum<FailureKind>::bind(
      module, "FailureKind",
      "What there is to say of a sample. FAILED: another decoder may know how; REFUSED: it would "
      "take too much in any decoder; LARGE: it is there, and larger than `large_pixels`.",
      {{"FAILED", FailureKind::kFailed},
       {"REFUSED", FailureKind::kRefused},
       {"LARGE", FailureKind::kLarge}});
  py::class_<DecodeQuota, std::shared_ptr<DecodeQuota>>(
      module, "DecodeQuota", "How many threads of the pool may work for one loader at a time.")
      .def(py::init(&make_quota), py::arg("threads"), py::kw_only(),
           py::arg("read_ahead") = py::none(),
           "`read_ahead`: whether threads read files before decode threads want them; None: while "
           "reading has to wait.")
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
      .def("times", &times,
           "What the threads have done for it: pictures, encoded bytes, files of a disk or a "
           "network, how many of these had to wait for it, and thread seconds at read, decode (and "
           "resize), recipe and finish. Of pictures whose rows were timed: looked_at, their share "
           "of decode, and resize, its part of that. 'jpegs: ...': how many JPEGs our own decoder "
           "left to libjpeg-turbo for that reason; for none, it made them. indexed: JPEGs that a "
           "seek index was used for; unfit: those whose index is damaged or of another file.");

  py::class_<Batch, BatchPtr>(module, "DecodeBatch",
                              "A batch in the pool; dropping it cancels what was not begun.")
      .def(
          py::init(&make_batch), py::kw_only(), py::arg("views"), py::arg("quota"),
          py::arg("indices"), py::arg("samples"), py::arg("seeds"), py::arg("kinds"),
          py::arg("memory"), py::arg("outs") = std::vector<std::vector<uintptr_t>>(),
          py::arg("held") = py::none(), py::arg("numbers") = std::vector<uint32_t>(),
          py::keep_alive<1, 2>(),
          "The pictures of each sample: [(jobs, number)]. The jobs have one source, and those of a "
          "view make pictures of one form: one for each kind of samples. `samples`: what they are "
          "drawn by; empty: the indices. `kinds`: of each sample; empty: the first. `numbers`: "
          "what "
          "is added to each sample's number; empty: nothing. A Reservation "
          "holds one view. `outs`: by view, the address to which each sample goes; empty, or an "
          "empty one: `memory`. `held` is what these are of: it lives until no thread writes.")
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
      .def("failures", &failures, "[(position, reason, kind)]; after wait().")
      .def(
          "take", &take, py::arg("view") = 0,
          "The pixels of a view as a DLPack capsule of shape (N, C, H, W); after wait(). Each call "
          "gives a capsule over the same memory, which is held until the batch and all tensors "
          "over it are gone. No sample can be written any more.")
      .def(
          "take_own", &take_own, py::arg("position"), py::arg("view") = 0,
          "The same of a sample's picture, (1, C, H, W), where they have sizes of their own; None: "
          "it failed.")
      .def("sizes", &sizes, "(height, width) of each sample's picture; after wait().")
      .def(
          "transform_pixels", &transform_pixels, py::arg("position"), py::kw_only(),
          py::arg("pixels"), py::arg("height"), py::arg("width"), py::arg("index") = py::none(),
          py::arg("kind") = py::none(),
          "Finishes a failed sample from RGB pixels that another decoder made. `index` and `kind`: "
          "of the sample that these pixels are of, if it is another one.")
      .def("decode_other", &decode_other, py::arg("position"), py::kw_only(), py::arg("index"),
           py::arg("seed"), py::arg("kind"),
           "Puts another sample, of that kind, in the place of a failed one.");

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
      "keep_decode_threads",
      [](const std::vector<size_t>& processors) {
        cpu_set_t wanted{};
        for (const size_t each : processors) {
          if (each < CPU_SETSIZE) CPU_SET(each, &wanted);
        }
        const WithoutGil unlocked;
        DecodePool::shared().keep_on(wanted);
      },
      py::arg("processors"),
      "The decode threads of this process run on these processors, and on those that other calls "
      "named, from now on.");
  module.def(
      "decode_scratch_bytes",
      [] {
        const WithoutGil unlocked;
        return DecodePool::shared().scratch_bytes();
      },
      "Memory that the decode threads of this process keep from picture to picture.");
}

}  // namespace fastloader::bindings
