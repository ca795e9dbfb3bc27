#include <pybind11/stl.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "backend/registry.h"
#include "base/error.h"
#include "bindings/enum.h"
#include "bindings/gil.h"
#include "bindings/register.h"
#include "pipeline/batch_layout.h"
#include "pipeline/pinned_pool.h"
#include "pipeline/prefetcher.h"
#include "pipeline/reservation.h"

#ifdef FASTLOADER_TEST_HOOKS
#include "backend/host/host_backend.h"
#endif

namespace py = pybind11;

namespace fastloader::bindings {
namespace {

// --- a batch and its slot -----------------------------------------------------------------------

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

void bind_batch_layout(py::module_& module) {
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

// --- the prefetcher -----------------------------------------------------------------------------

using SharedLayout = std::shared_ptr<const BatchLayout>;

// Python runs signal handlers only between calls; a tenth of a second is what Ctrl-C may take.
constexpr std::chrono::milliseconds kSignalInterval{100};

/// A prefetcher and the backend it stands on. The default backends live for ever; one made for a
/// test lives as long as its prefetcher.
struct PrefetcherHandle {
  std::shared_ptr<Backend> twin;
  std::unique_ptr<Prefetcher> prefetcher;
  Ticket arrived;  // of the batch that wait_arrival announced and deliver will take
};

/// Destroying a handle joins its threads. A thread must not hold the GIL while it waits for that.
struct DeletePrefetcher {
  void operator()(PrefetcherHandle* handle) const {
    const WithoutGil unlocked;
    handle->prefetcher.reset();
    delete handle;
  }
};

using PrefetcherPtr = std::unique_ptr<PrefetcherHandle, DeletePrefetcher>;

/// Calls `attempt(deadline)` without the GIL until it answers something else than `again` or it is
/// `until`, running Python's signal handlers in between.
template <typename Result, typename Attempt>
Result interruptible(Result again, Attempt attempt,
                     Ring::Clock::time_point until = Ring::Clock::time_point::max()) {
  for (;;) {
    Result result = again;
    {
      const WithoutGil unlocked;
      result = attempt(std::min(until, Ring::Clock::now() + kSignalInterval));
    }
    if (result != again) return result;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    if (Ring::Clock::now() >= until) return again;
  }
}

/// On `twin` where there is one, else on the backend of that name.
PrefetcherPtr make_prefetcher_on(std::shared_ptr<Backend> twin, const std::string& backend,
                                 int device, size_t depth, size_t max_slot_bytes,
                                 size_t max_depth) {
  // Not a PrefetcherPtr yet: if this throws, the handle dies while the GIL is already released.
  auto handle = std::make_unique<PrefetcherHandle>();
  const WithoutGil unlocked;
  handle->twin = std::move(twin);
  Backend& chosen = handle->twin != nullptr ? *handle->twin : open_backend(backend);
  handle->prefetcher =
      std::make_unique<Prefetcher>(chosen, device, depth, max_slot_bytes, max_depth);
  return PrefetcherPtr(handle.release());
}

#ifdef FASTLOADER_TEST_HOOKS
PrefetcherPtr make_prefetcher(const std::string& backend, int device, size_t depth,
                              size_t max_slot_bytes, uint64_t twin_delay_seed,
                              uint64_t twin_fail_on_call, bool twin_unpinned,
                              double twin_copy_seconds, size_t max_depth) {
  std::shared_ptr<Backend> twin;
  if (twin_delay_seed != 0 || twin_fail_on_call != 0 || twin_unpinned || twin_copy_seconds > 0) {
    if (backend != "host") throw InvalidArgument("the twin_ options are for backend 'host'");
    HostBackendOptions options;
    options.delay_seed = twin_delay_seed;
    options.fail_on_call = twin_fail_on_call;
    options.fail_pinning = twin_unpinned;
    options.copy_delay = std::chrono::microseconds(static_cast<int64_t>(twin_copy_seconds * 1e6));
    twin = std::make_shared<HostBackend>(options);
  }
  return make_prefetcher_on(std::move(twin), backend, device, depth, max_slot_bytes, max_depth);
}
#else
PrefetcherPtr make_prefetcher(const std::string& backend, int device, size_t depth,
                              size_t max_slot_bytes, size_t max_depth) {
  return make_prefetcher_on(nullptr, backend, device, depth, max_slot_bytes, max_depth);
}
#endif

bool push(PrefetcherHandle& handle, uint64_t epoch, const LayoutPtr& layout,
          const std::vector<uintptr_t>& addresses) {
  std::vector<const void*> leaves;
  leaves.reserve(addresses.size());
  for (const uintptr_t address : addresses) leaves.push_back(reinterpret_cast<void*>(address));
  const SharedLayout shared = layout;
  return interruptible(Ring::WaitStatus::kTimeout, [&](Ring::Clock::time_point deadline) {
           return handle.prefetcher->push(epoch, shared, leaves, deadline);
         }) == Ring::WaitStatus::kOk;
}

std::shared_ptr<PinnedPool> memory_of(const PrefetcherHandle& handle,
                                      const WithoutGil& /*unlocked*/) {
  // May outlive the handle; who makes a block needs the backend still.
  struct Kept {
    std::shared_ptr<Backend> twin;
    std::shared_ptr<PinnedPool> memory;
  };
  const auto kept = std::make_shared<Kept>(Kept{handle.twin, handle.prefetcher->memory()});
  return {kept, kept->memory.get()};
}

std::shared_ptr<Reservation> reserve(PrefetcherHandle& handle, uint64_t epoch, size_t bytes) {
  // May outlive the handle; its memory needs the backend still.
  struct Kept {
    std::shared_ptr<Backend> twin;
    std::shared_ptr<Reservation> place;
  };
  auto kept = std::make_shared<Kept>();
  kept->twin = handle.twin;
  const auto waited =
      interruptible(Ring::WaitStatus::kTimeout, [&](Ring::Clock::time_point deadline) {
        return handle.prefetcher->reserve(epoch, bytes, deadline, &kept->place);
      });
  if (waited != Ring::WaitStatus::kOk) return nullptr;
  return {kept, kept->place.get()};
}

bool put(PrefetcherHandle& handle, uint64_t epoch, EntryKind kind) {
  return interruptible(Ring::WaitStatus::kTimeout, [&](Ring::Clock::time_point deadline) {
           return handle.prefetcher->ring().put(epoch, kind, deadline);
         }) == Ring::WaitStatus::kOk;
}

py::object wait_arrival(PrefetcherHandle& handle, uint64_t epoch, double timeout) {
  auto until = Ring::Clock::time_point::max();
  if (timeout > 0 && timeout < 1e9) {
    until = Ring::Clock::now() + std::chrono::duration_cast<Ring::Clock::duration>(
                                     std::chrono::duration<double>(timeout));
  }
  const auto arrival = interruptible(
      Ring::Arrival::kTimeout,
      [&](Ring::Clock::time_point deadline) {
        return handle.prefetcher->ring().wait_arrival(deadline, &handle.arrived, epoch);
      },
      until);
  return Enum<Ring::Arrival>::member(arrival);
}

py::list uncredited(PrefetcherHandle& handle, bool ahead) {
  std::vector<Ring::Uncredited> lacking;
  {
    const WithoutGil unlocked;
    lacking = handle.prefetcher->ring().uncredited(ahead);
  }
  py::list result;
  for (const Ring::Uncredited& missing : lacking) {
    result.append(py::make_tuple(missing.seq, missing.filled));
  }
  return result;
}

void give_credit(PrefetcherHandle& handle, uint64_t seq, const LayoutPtr& layout,
                 const std::vector<uintptr_t>& outputs, uintptr_t staging, uintptr_t stream) {
  std::vector<void*> addresses;
  addresses.reserve(outputs.size());
  for (const uintptr_t address : outputs) addresses.push_back(reinterpret_cast<void*>(address));
  const WithoutGil unlocked;  // a new stream costs the backend some calls, each an event to record
  handle.prefetcher->give_credit(seq, layout, addresses, reinterpret_cast<void*>(staging), stream);
}

py::dict ring_stats(PrefetcherHandle& handle) {
  Ring::Stats stats;
  PinnedPool::Stats memory;
  size_t depth = 0;
  {
    const WithoutGil unlocked;
    stats = handle.prefetcher->ring().stats();
    memory = handle.prefetcher->memory()->stats();
    depth = handle.prefetcher->depth();
  }
  py::dict result;
  result["depth"] = depth;
  result["filled"] = stats.filled;
  result["delivered"] = stats.delivered;
  result["bytes"] = stats.bytes;
  result["copied_bytes"] = stats.copied;
  result["slot_growths"] = stats.slot_growths;
  result["ring_bytes"] = stats.slot_bytes + memory.bytes;
  result["pinned"] = stats.pinned && memory.why_not_pinned.empty();
  result["why_not_pinned"] = stats.pinned ? memory.why_not_pinned : stats.why_not_pinned;
  result["producer_wait_s"] = stats.producer_wait_s;
  result["consumer_wait_s"] = stats.consumer_wait_s;
  result["pack_s"] = stats.pack_s;
  result["device_s"] = stats.device_s;
  result["device_wait_s"] = stats.device_wait_s;
  result["asked"] = stats.asked;
  result["found"] = stats.found;
  return result;
}

void bind_prefetcher(py::module_& module) {
  Enum<Ring::Arrival>::bind(module, "Arrival", "What has come next in order.",
                            {{"BATCH", Ring::Arrival::kBatch},
                             {"ERROR", Ring::Arrival::kError},
                             {"END", Ring::Arrival::kEnd},
                             {"NEEDS_CREDIT", Ring::Arrival::kNeedsCredit},
                             {"TIMEOUT", Ring::Arrival::kTimeout},
                             {"OVER", Ring::Arrival::kOver}});
  py::class_<PrefetcherHandle, PrefetcherPtr>(
      module, "Prefetcher",
      "Ring, prefetch thread and reaper on one device. Addresses are plain integers: of host "
      "memory (push; needed until it returns) and of device memory (give_credit; the caller keeps "
      "it alive until the batch has been delivered or the epoch cancelled). `stream` is the handle "
      "of the consumer's current stream; 0 is the legacy default stream.")
      .def(py::init(&make_prefetcher), py::kw_only(), py::arg("backend"), py::arg("device"),
           py::arg("depth"), py::arg("max_slot_bytes"),
#ifdef FASTLOADER_TEST_HOOKS
           py::arg("twin_delay_seed") = 0, py::arg("twin_fail_on_call") = 0,
           py::arg("twin_unpinned") = false, py::arg("twin_copy_seconds") = 0.0,
#endif
           py::arg("max_depth") = 0)
      .def(
          "open_epoch",
          [](PrefetcherHandle& handle) {
            Ring::Epoch epoch;
            {
              const WithoutGil unlocked;
              epoch = handle.prefetcher->ring().open_epoch();
            }
            return py::make_tuple(epoch.number, epoch.first_seq);
          },
          "(number, sequence number of the first batch) of a new epoch.")
      .def(
          "push", &push, py::arg("epoch"), py::arg("layout"), py::arg("addresses"),
          "Copies a batch into the next slot, waiting for one to be free. What lies in `memory` is "
          "not copied and must not change any more. False: the epoch is over.")
      .def_property_readonly(
          "memory",
          [](const PrefetcherHandle& handle) {
            const WithoutGil unlocked;
            return memory_of(handle, unlocked);
          },
          "Where pictures may be decoded that have no slot yet.")
      .def("reserve", &reserve, py::arg("epoch"), py::arg("bytes"),
           "The next slot, waiting for one to be free; several are committed in the order in which "
           "they were reserved. None: the epoch is over.")
      .def(
          "put_error",
          [](PrefetcherHandle& handle, uint64_t epoch) {
            return put(handle, epoch, EntryKind::kError);
          },
          py::arg("epoch"))
      .def(
          "put_end",
          [](PrefetcherHandle& handle, uint64_t epoch) {
            return put(handle, epoch, EntryKind::kEnd);
          },
          py::arg("epoch"))
      .def("uncredited", &uncredited, py::arg("ahead"),
           "[(sequence number, whether the batch is in the ring already)] of batches that lack "
           "memory.")
      .def("give_credit", &give_credit, py::kw_only(), py::arg("seq"), py::arg("layout"),
           py::arg("outputs"), py::arg("staging"), py::arg("stream"))
      .def("wait_arrival", &wait_arrival, py::arg("epoch"), py::arg("timeout"),
           "What has come: OVER once the epoch was cancelled, or TIMEOUT after `timeout` seconds, "
           "unless that is 0. Looks for signals every 100 ms.")
      .def(
          "deliver",
          [](PrefetcherHandle& handle, uintptr_t stream) {
            const WithoutGil unlocked;
            handle.prefetcher->deliver(handle.arrived, stream);
          },
          py::arg("stream"))
      .def(
          "skip",
          [](PrefetcherHandle& handle) {
            const WithoutGil unlocked;
            handle.prefetcher->ring().delivered();
          },
          "Moves on from an ERROR.")
      .def(
          "cancel",
          [](PrefetcherHandle& handle, const std::vector<uintptr_t>& streams) {
            const WithoutGil unlocked;
            handle.prefetcher->cancel(streams);
          },
          py::arg("streams"),
          "Ends the epoch; the streams, those of the credits, wait for what is under way.")
      .def(
          "deepen",
          [](PrefetcherHandle& handle, size_t depth) {
            const WithoutGil unlocked;
            handle.prefetcher->ring().deepen(depth);
          },
          py::arg("depth"), "More slots from now on, up to `max_depth`; never fewer.")
      .def(
          "lower",
          [](PrefetcherHandle& handle, size_t depth) {
            const WithoutGil unlocked;
            handle.prefetcher->ring().lower(depth);
          },
          py::arg("depth"), "Fewer slots and credits from now on; never more.")
      .def(
          "progress",
          [](PrefetcherHandle& handle) {
            Ring::Progress progress;
            {
              const WithoutGil unlocked;
              progress = handle.prefetcher->ring().progress();
            }
            return py::make_tuple(progress.delivered, progress.filled);
          },
          "Sequence numbers of the batch to be delivered next, and of the one to be put next.")
      .def(
          "failed",
          [](PrefetcherHandle& handle) {
            const WithoutGil unlocked;
            return handle.prefetcher->failed();
          },
          "Whether the device refused something: the prefetcher is of no more use.")
      .def(
          "ready_last",
          [](PrefetcherHandle& handle) {
            const WithoutGil unlocked;
            return handle.prefetcher->ring().stats().ready_last;
          },
          "Batches on the device, or on their way, when the consumer came for its last one.")
      .def("close",
           [](PrefetcherHandle& handle) {
             const WithoutGil unlocked;
             handle.prefetcher->close();
           })
      .def("stats", &ring_stats);
}

}  // namespace

void register_prefetcher(py::module_& module) {
  bind_batch_layout(module);
  bind_prefetcher(module);
  module.def(
      "numa_node",
      [](const std::string& backend, int device) {
        const WithoutGil unlocked;
        return open_backend(backend).numa_node(device);
      },
      py::kw_only(), py::arg("backend"), py::arg("device"),
      "The NUMA node at which a device is; -1 if that is not known.");
}

}  // namespace fastloader::bindings
