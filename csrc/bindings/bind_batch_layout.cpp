#include <pybind11/stl.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "bindings/gil.h"
#include "bindings/register.h"
#include "pipeline/batch_layout.h"
#include "pipeline/reservation.h"

namespace py = pybind11;

namespace fastloader::bindings {
namespace {

using LayoutPtr = std::shared_ptr<BatchLayout>;

bool commit(Reservation& place, const LayoutPtr& layout, const std::vector<uintptr_t>& addresses) {
  std::vector<const void*> leaves;
  leaves.reserve(addresses.size());
  for (const uintptr_t address : addresses) leaves.push_back(reinterpret_cast<void*>(address));
  const WithoutGil unlocked;
  return place.commit(layout, leaves);
}

using Spec = std::variant<std::monostate, NormalizeSpec, AugmentSpec>;

BatchLayout make_layout(const std::vector<std::pair<size_t, Spec>>& leaves) {
  std::vector<BatchLayout::Leaf> made;
  for (const auto& [bytes, spec] : leaves) {
    BatchLayout::Leaf leaf;
    leaf.bytes = bytes;
    if (const auto* normalize = std::get_if<NormalizeSpec>(&spec)) leaf.normalize = *normalize;
    if (const auto* augment = std::get_if<AugmentSpec>(&spec)) leaf.augment = *augment;
    made.push_back(leaf);
  }
  return BatchLayout(std::move(made));
}

}  // namespace

void register_batch_layout(py::module_& module) {
  py::class_<BatchLayout, LayoutPtr>(
      module, "BatchLayout",
      "How the leaves of one batch lie in a slot: (bytes, NormalizeSpec, AugmentSpec or None) "
      "each. With an AugmentSpec the last leaf holds its records and has no output.")
      .def(py::init(&make_layout), py::arg("leaves"))
      .def_property_readonly("packed_bytes", &BatchLayout::packed_bytes)
      .def_property_readonly("staging_bytes", &BatchLayout::staging_bytes);

  py::class_<Reservation, std::shared_ptr<Reservation>>(
      module, "Reservation",
      "A slot of the ring in the making. Dropping it without a commit gives the slot back.")
      .def("commit", &commit, py::arg("layout"), py::arg("addresses"),
           "Hands the slot over; leaves that lie at their place in it are not copied. False: the "
           "epoch is over.")
      .def(
          "commit_error",
          [](Reservation& place) {
            const WithoutGil unlocked;
            return place.commit(EntryKind::kError);
          },
          "The same with an error in the batch's place.")
      .def_property_readonly(
          "address",
          [](const Reservation& place) { return reinterpret_cast<uintptr_t>(place.data()); },
          "Where the slot's memory begins; it may be written until the commit.");
}

}  // namespace fastloader::bindings
