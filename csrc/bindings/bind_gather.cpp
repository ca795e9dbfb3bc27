#include <pybind11/stl.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/per_process.h"
#include "bindings/gil.h"
#include "bindings/register.h"
#include "pipeline/gather_pool.h"

namespace py = pybind11;

namespace fastloader::bindings {
namespace {

/// What Python holds.
struct Gather {
  std::shared_ptr<GatherBatch> batch;
};

/// Waits for a thread that is at one of its pieces.
struct DeleteGather {
  void operator()(Gather* gather) const {
    const WithoutGil unlocked;
    per_process<GatherPool>().cancel(*gather->batch);
    delete gather;
  }
};

using GatherPtr = std::unique_ptr<Gather, DeleteGather>;
using Array = std::tuple<uintptr_t, size_t, size_t, uintptr_t, size_t, bool>;
using Map = std::tuple<uintptr_t, size_t, uint64_t>;

// Whether it was said that there are no threads. Partner: itself.
std::atomic<bool> warned{false};

GatherPtr begin(const std::vector<Array>& arrays, const std::vector<Map>& maps,
                const py::object& /*keep*/, uintptr_t indices, size_t count, size_t threads) {
  const WithoutGil unlocked;
  std::vector<std::vector<uint64_t>> lists;
  lists.reserve(maps.size());
  for (const auto& [map, size, rows] : maps) {
    lists.push_back(resolve_rows(reinterpret_cast<const int64_t*>(indices), count,
                                 reinterpret_cast<const int64_t*>(map), size, rows));
  }
  std::vector<GatherLeaf> leaves;
  leaves.reserve(arrays.size());
  for (const auto& [source, row_bytes, row_step, destination, list, mapped] : arrays) {
    leaves.push_back({reinterpret_cast<const std::byte*>(source), row_bytes, row_step,
                      reinterpret_cast<std::byte*>(destination), list, mapped});
  }
  auto batch = std::make_shared<GatherBatch>(std::move(leaves), std::move(lists));
  if (threads > 0) {
    try {
      per_process<GatherPool>().grow(threads);
      per_process<GatherPool>().submit(batch);
    } catch (const Error& error) {
      // Who waits for the batch copies all rows alone.
      if (!warned.exchange(true)) log_warning(error.what());
    }
  }
  return GatherPtr(new Gather{std::move(batch)});
}

void wait_for_rows(Gather& gather) {
  bool done = false;
  while (!done) {
    {
      const WithoutGil unlocked;
      done = per_process<GatherPool>().wait(
          *gather.batch, GatherPool::Clock::now() + std::chrono::milliseconds(100));
    }
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  }
}

}  // namespace

void register_gather(py::module_& module) {
  py::class_<Gather, GatherPtr>(
      module, "GatherBatch",
      "Rows of arrays on their way into the memory of a batch; dropping it cancels what was not "
      "begun.")
      .def(py::init(&begin), py::arg("arrays"), py::arg("maps"), py::arg("keep"), py::kw_only(),
           py::arg("indices"), py::arg("count"), py::arg("threads"), py::keep_alive<1, 4>(),
           "`arrays`: (source address, bytes of a row, bytes from row to row, destination address, "
           "number of its map, whether a file is mapped there); `maps`: (address of int64 indices "
           "or 0, how many, rows of its "
           "arrays); `indices`: address of `count` int64 indices, read here only. `threads` are "
           "offered the batch at once; with 0, wait() copies all of it. `keep` owns sources and "
           "destinations. Raises IndexError for an "
           "index that an array does not have.")
      .def(
          "seconds",
          [](const Gather& gather) {
            const WithoutGil unlocked;
            return static_cast<double>(per_process<GatherPool>().nanoseconds(*gather.batch)) * 1e-9;
          },
          "Thread time that copying has taken.")
      .def(
          "unread",
          [](const Gather& gather) -> std::optional<std::pair<size_t, size_t>> {
            const WithoutGil unlocked;
            const std::optional<UnreadRow> row = per_process<GatherPool>().unread(*gather.batch);
            if (!row) return std::nullopt;
            return std::pair(row->leaf, row->position);
          },
          "(number of the array, position in the batch) of a row that could not be read, once "
          "wait() has returned: its file was cut off. None: all rows were read.")
      .def("wait", &wait_for_rows,
           "Returns when every row was copied; looks for signals every 100 ms.");
}

}  // namespace fastloader::bindings
