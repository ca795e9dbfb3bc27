#include <pybind11/stl.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string_view>

#include "bindings/dlpack.h"
#include "bindings/gil.h"
#include "bindings/register.h"
#include "pipeline/shared_slot_table.h"

namespace py = pybind11;

namespace fastloader::bindings {
namespace {

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

}  // namespace

void register_shared_slots(py::module_& module) {
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
          "one "
          "may have closed the descriptor.");
}

}  // namespace fastloader::bindings
