#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "bindings/gil.h"
#include "bindings/memory.h"
#include "bindings/register.h"
#include "image/normalize/augment.h"
#include "pipeline/buffer_pool.h"
#include "pipeline/pinned_pool.h"
#include "pipeline/shared_slot_table.h"

namespace py = pybind11;

namespace fastloader::bindings {
namespace {

// --- tensors ------------------------------------------------------------------------------------

constexpr const char* kFresh = "dltensor";

/// What a DLPack consumer holds; freed by its deleter, which may run without the GIL.
struct HeldTensor {
  dlpack::ManagedTensor managed{};
  std::shared_ptr<void> memory;
  std::array<int64_t, 4> shape{};
  std::array<int64_t, 4> strides{};
};

void delete_held(dlpack::ManagedTensor* managed) {
  delete static_cast<HeldTensor*>(managed->manager);
}

// A capsule that was not consumed still owns its memory. torch renames the ones that it takes.
void delete_capsule(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, kFresh) == 0) return;
  auto* managed = static_cast<dlpack::ManagedTensor*>(PyCapsule_GetPointer(capsule, kFresh));
  managed->deleter(managed);
}

py::capsule hold(std::shared_ptr<void> memory, dlpack::DataType type, int32_t dimensions,
                 const std::array<int64_t, 4>& shape, const std::array<int64_t, 4>& strides) {
  auto held = std::make_unique<HeldTensor>();
  held->memory = std::move(memory);
  held->shape = shape;
  held->strides = strides;
  dlpack::Tensor& tensor = held->managed.tensor;
  tensor.data = held->memory.get();
  tensor.device = {dlpack::kCpu, 0};
  tensor.ndim = dimensions;
  tensor.dtype = type;
  tensor.shape = held->shape.data();
  tensor.strides = held->strides.data();
  held->managed.manager = held.get();
  held->managed.deleter = delete_held;
  PyObject* capsule = PyCapsule_New(&held->managed, kFresh, delete_capsule);
  if (capsule == nullptr) throw py::error_already_set();
  (void)held.release();
  return py::reinterpret_steal<py::capsule>(capsule);
}

}  // namespace

dlpack::DataType dlpack_type(FloatType type) {
  switch (type) {
    case FloatType::kFloat16:
      return {dlpack::kFloat, 16, 1};
    case FloatType::kBFloat16:
      return {dlpack::kBfloat, 16, 1};
    case FloatType::kFloat32:
      break;
  }
  return {dlpack::kFloat, 32, 1};
}

std::array<int64_t, 4> nchw_strides(const std::array<int64_t, 4>& shape, Layout layout) {
  const auto [n, c, h, w] = shape;
  if (layout == Layout::kNhwc) return {c * h * w, 1, w * c, c};
  return {c * h * w, h * w, w, 1};
}

py::capsule tensor_capsule(std::shared_ptr<void> memory, dlpack::DataType type,
                           const std::array<int64_t, 4>& shape,
                           const std::array<int64_t, 4>& strides) {
  return hold(std::move(memory), type, 4, shape, strides);
}

py::capsule bytes_capsule(std::shared_ptr<void> memory, size_t size) {
  return hold(std::move(memory), {dlpack::kUnsigned, 8, 1}, 1, {static_cast<int64_t>(size)}, {1});
}

namespace {

// --- batches for the CPU ------------------------------------------------------------------------

py::capsule capsule_of(std::shared_ptr<std::byte> memory, const NormalizeSpec& spec) {
  const std::array<int64_t, 4> shape = {
      static_cast<int64_t>(spec.batch), static_cast<int64_t>(spec.channels),
      static_cast<int64_t>(spec.height), static_cast<int64_t>(spec.width)};
  return tensor_capsule(std::move(memory), dlpack_type(spec.out_type), shape,
                        nchw_strides(shape, spec.out_layout));
}

py::capsule normalized(BufferPool& pool, const NormalizeSpec& spec, uintptr_t source) {
  std::shared_ptr<std::byte> memory;
  {
    const WithoutGil unlocked;
    memory = pool.share(spec.out_bytes());
    normalize(spec, reinterpret_cast<const uint8_t*>(source), memory.get());
  }
  return capsule_of(std::move(memory), spec);
}

py::capsule augmented(BufferPool& pool, const AugmentSpec& spec, uintptr_t source,
                      uintptr_t records) {
  std::shared_ptr<std::byte> memory;
  {
    const WithoutGil unlocked;
    memory = pool.share(spec.out_bytes());
    augment(spec, reinterpret_cast<const void*>(records), reinterpret_cast<const uint8_t*>(source),
            memory.get());
  }
  return capsule_of(std::move(memory), spec.normalize);
}

py::capsule share_bytes(BufferPool& pool, size_t count) {
  std::shared_ptr<std::byte> memory;
  {
    const WithoutGil unlocked;
    memory = pool.share(count);
  }
  const auto size = static_cast<int64_t>(count);
  return tensor_capsule(std::move(memory), {dlpack::kUnsigned, 8, 1}, {1, 1, 1, size},
                        {size, size, size, 1});
}

py::dict stats_of(const BufferPool& pool) {
  BufferPool::Stats stats;
  {
    const WithoutGil unlocked;
    stats = pool.stats();
  }
  py::dict result;
  result["made"] = stats.made;
  result["recycled"] = stats.recycled;
  result["free"] = stats.free;
  result["in_use"] = stats.in_use;
  result["bytes"] = stats.bytes;
  return result;
}

void bind_buffer_pool(py::module_& module) {
  py::class_<BufferPool, std::shared_ptr<BufferPool>>(
      module, "BufferPool",
      "Host memory for CPU batches that comes back when the last tensor on it dies.")
      .def(py::init(&BufferPool::create))
      .def("normalized", &normalized, py::arg("spec"), py::kw_only(), py::arg("source"),
           "Normalises the uint8 batch at address `source` into recycled memory and returns a "
           "DLPack capsule of shape (N, C, H, W). The caller keeps `source` alive until it "
           "returns.")
      .def("bytes", &share_bytes, py::arg("count"),
           "Recycled memory as a DLPack capsule of uint8, shape (1, 1, 1, count), contents "
           "undefined.")
      .def("augmented", &augmented, py::arg("spec"), py::kw_only(), py::arg("source"),
           py::arg("records"), "The same with the records of an AugmentSpec, aligned to 8 bytes.")
      .def(
          "keep",
          [](BufferPool& pool, size_t blocks) {
            const WithoutGil unlocked;
            pool.keep(blocks);
          },
          py::arg("blocks"),
          "So many free blocks are kept for the next batches; never fewer than before.")
      .def(
          "keep_small",
          [](BufferPool& pool, size_t bytes) {
            const WithoutGil unlocked;
            pool.keep_small(bytes);
          },
          py::arg("bytes"),
          "Besides, many free blocks are kept as long as they have so many bytes together.")
      .def("stats", &stats_of);
}

// --- batches for a device -----------------------------------------------------------------------

void bind_pinned_pool(py::module_& module) {
  py::class_<PinnedPool, std::shared_ptr<PinnedPool>>(
      module, "PinnedPool", "Host memory that the device reads where it lies.")
      .def(
          "stats",
          [](const PinnedPool& pool) {
            PinnedPool::Stats stats;
            {
              const WithoutGil unlocked;
              stats = pool.stats();
            }
            py::dict result;
            result["blocks"] = stats.blocks;
            result["in_use"] = stats.in_use;
            result["bytes"] = stats.bytes;
            return result;
          },
          "`blocks`, how many of them are `in_use`, and the `bytes` of all.");
}

// --- batches of worker processes ----------------------------------------------------------------

using Lease = SharedSlotTable::Lease;

// Small copies are not worth letting go of the GIL.
constexpr size_t kLarge = size_t{64} << 10;

void copy(void* to, const void* from, size_t bytes) {
  if (bytes < kLarge) {
    std::memcpy(to, from, bytes);
    return;
  }
  const WithoutGil unlocked;
  std::memcpy(to, from, bytes);
}

py::object collate(const std::shared_ptr<WorkerSlots>& slots, size_t slot, size_t bytes) {
  const std::optional<size_t> offset = slots->collate(slot, bytes);
  if (!offset) return py::none();
  return bytes_capsule({slots->hold(slot), slots->memory().at(slot, *offset, bytes)}, bytes);
}

std::optional<size_t> place(WorkerSlots& slots, size_t slot, uintptr_t source, size_t bytes) {
  const void* from = reinterpret_cast<const void*>(source);
  const std::optional<size_t> there = slots.memory().find(slot, from);
  if (there) return there;  // it was collated there
  const std::optional<size_t> offset = slots.place(slot, bytes);
  if (offset) copy(slots.memory().at(slot, *offset, bytes), from, bytes);
  return offset;
}

void bind_shared_slots(py::module_& module) {
  py::class_<Lease, std::shared_ptr<Lease>>(
      module, "SlotLease",
      "Keeps a slot of a SharedSlotTable from being used again while it lives.")
      .def(
          "tensor",
          [](const std::shared_ptr<Lease>& lease, size_t offset, size_t bytes) {
            return bytes_capsule({lease, lease->at(offset, bytes)}, bytes);
          },
          py::arg("offset"), py::arg("size"),
          "A DLPack capsule of `size` uint8 elements in the slot, which keeps the lease.")
      .def(
          "copy_out",
          [](const Lease& lease, size_t offset, size_t bytes, uintptr_t to) {
            copy(reinterpret_cast<void*>(to), lease.at(offset, bytes), bytes);
          },
          py::arg("offset"), py::arg("size"), py::arg("to"),
          "Copies bytes of the slot to an address that has room for them.")
      .def(
          "view",
          [](const Lease& lease, size_t offset, size_t bytes) {
            return py::memoryview::from_memory(static_cast<const void*>(lease.at(offset, bytes)),
                                               static_cast<ssize_t>(bytes));
          },
          py::arg("offset"), py::arg("size"),
          "The bytes themselves. The caller keeps the lease for as long as it reads.");
  py::class_<WorkerSlots, std::shared_ptr<WorkerSlots>>(
      module, "WorkerSlots", "Worker's side of a SharedSlotTable, in another process.")
      .def(py::init([](int fd, size_t slots, size_t slot_bytes) {
             return WorkerSlots::create(std::make_shared<SlotMemory>(fd, slots, slot_bytes));
           }),
           py::kw_only(), py::arg("fd"), py::arg("slots"), py::arg("slot_bytes"),
           "In a process that did not inherit the table. Takes the descriptor over.")
      .def("begin", &WorkerSlots::begin, py::arg("slot"),
           "Starts a batch; False while tensors of this process lie in the slot.")
      .def("collate", &collate, py::arg("slot"), py::arg("size"),
           "A DLPack capsule of `size` uint8 elements in the slot; None if it is full.")
      .def("place", &place, py::arg("slot"), py::arg("source"), py::arg("size"),
           "Offset in the slot of the bytes at address `source`, copied unless they lie there "
           "already; None if the slot is full.")
      .def(
          "place_bytes",
          [](WorkerSlots& slots, size_t slot, const py::bytes& content) {
            const std::string_view text = content;
            const std::optional<size_t> offset = slots.place(slot, text.size());
            if (offset)
              copy(slots.memory().at(slot, *offset, text.size()), text.data(), text.size());
            return offset;
          },
          py::arg("slot"), py::arg("content"), "As place, of a bytes object.")
      .def("finish", &WorkerSlots::finish, py::arg("slot"), "The batch is complete.");
  py::class_<SharedSlotTable, std::shared_ptr<SharedSlotTable>>(
      module, "SharedSlotTable", "Consumer's side of the slots that worker processes collate into.")
      .def(py::init(&SharedSlotTable::create), py::kw_only(), py::arg("workers"),
           py::arg("slots_per_worker"), py::arg("slot_bytes"))
      .def("take", &SharedSlotTable::take, py::arg("worker"),
           "Number of a slot for the worker to fill next, or None when none is free.")
      .def("receive", &SharedSlotTable::receive, py::arg("slot"),
           "The lease on a slot that its worker has filled.")
      .def("reclaim", &SharedSlotTable::reclaim,
           "Frees what was with the workers, which must have ended.")
      .def(
          "in_child",
          [](const SharedSlotTable& table) { return WorkerSlots::create(table.memory()); },
          "The worker's side, in a forked child.")
      .def("slots_held", &SharedSlotTable::slots_held)
      .def("touched_bytes", &SharedSlotTable::touched_bytes)
      .def_property_readonly("workers", &SharedSlotTable::workers)
      .def_property_readonly("slots_per_worker", &SharedSlotTable::slots_per_worker)
      .def_property_readonly(
          "slot_bytes", [](const SharedSlotTable& table) { return table.memory()->slot_bytes(); })
      .def_property_readonly("fd",
                             [](const SharedSlotTable& table) { return table.memory()->fd(); })
      .def_property_readonly(
          "has_descriptor",
          [](const SharedSlotTable& table) { return table.memory()->has_descriptor(); },
          "Whether a process that does not inherit the table can be given it: other code of this "
          "one may have closed the descriptor.");
}

}  // namespace

void register_memory(py::module_& module) {
  bind_buffer_pool(module);
  bind_pinned_pool(module);
  bind_shared_slots(module);
}

}  // namespace fastloader::bindings
