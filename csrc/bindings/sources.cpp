#include <pybind11/stl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/mapped_memory.h"
#include "base/per_process.h"
#include "bindings/gil.h"
#include "bindings/register.h"
#include "pipeline/gather_pool.h"
#include "source/folder_source.h"
#include "source/memory_source.h"
#include "source/pixel_source.h"
#include "source/tar.h"

#ifdef FASTLOADER_TEST_HOOKS
#include "source/delayed_source.h"
#endif

namespace py = pybind11;

namespace fastloader::bindings {
namespace {

// --- pictures -----------------------------------------------------------------------------------

using Bytes = py::buffer;

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

/// Two rows of numbers of one length: addresses and sizes.
using Table = std::pair<Bytes, Bytes>;

std::shared_ptr<MemorySource> make_memory(const Bytes& addresses, const Bytes& sizes,
                                          const py::object& /*owner*/,
                                          const std::optional<Table>& seek_indices) {
  const py::buffer_info where = addresses.request();
  const auto table = [&](const Bytes& begins, const Bytes& lengths) {
    const py::buffer_info begin = begins.request();
    const py::buffer_info length = lengths.request();
    if (begin.size != where.size || length.size != where.size) {
      throw InvalidArgument("as many sizes as addresses are needed");
    }
    return MemorySource::Table{numbers_of(begin), numbers_of(length)};
  };
  MemorySource::Table indices;
  if (seek_indices) indices = table(seek_indices->first, seek_indices->second);
  return std::make_shared<MemorySource>(table(addresses, sizes), indices,
                                        static_cast<uint64_t>(where.size));
}

/// Whether a file is mapped to a part of an array.
bool is_mapped(const py::buffer_info& array) {
  const auto* first = static_cast<const uint8_t*>(array.ptr);
  const uint8_t* last = first;
  for (size_t i = 0; i < array.shape.size(); ++i) {
    if (array.shape[i] == 0) return false;
    const py::ssize_t reach = (array.shape[i] - 1) * array.strides[i];
    (reach < 0 ? first : last) += reach;
  }
  return !mapped_file(first, static_cast<size_t>(last - first) + 1).empty();
}

std::shared_ptr<PixelSource> make_pixels(const std::vector<Bytes>& arrays) {
  std::vector<PixelSource::Array> made;
  for (const Bytes& each : arrays) {
    const py::buffer_info array = each.request();
    if (array.itemsize != 1 || (array.ndim != 3 && array.ndim != 4)) {
      throw InvalidArgument(
          "a pixel source takes arrays of bytes, (pictures, height, width) or (pictures, height, "
          "width, channels)");
    }
    const bool grey = array.ndim == 3;
    PixelSource::Array pictures;
    pictures.first = static_cast<const uint8_t*>(array.ptr);
    pictures.count = static_cast<uint64_t>(array.shape[0]);
    pictures.size = {static_cast<size_t>(array.shape[1]), static_cast<size_t>(array.shape[2])};
    pictures.channels = grey ? 1 : static_cast<size_t>(array.shape[3]);
    pictures.to_picture = array.strides[0];
    pictures.to_row = array.strides[1];
    pictures.to_column = array.strides[2];
    pictures.to_channel = grey ? 0 : array.strides[3];
    pictures.mapped = is_mapped(array);
    made.push_back(pictures);
  }
  return std::make_shared<PixelSource>(std::move(made));
}

void bind_sources(py::module_& module) {
  py::class_<Source, std::shared_ptr<Source>>(module, "Source", "Where pictures lie.")
      .def("__len__", &Source::size)
      .def(
          "name",
          [](const Source& source, uint64_t index) { return path_text(source.name(index)); },
          py::arg("index"))
      .def(
          "read",
          [](const Source& source, uint64_t index) {
            std::vector<uint8_t> bytes;
            {
              const WithoutGil unlocked;
              source.read(index, bytes);
            }
            return py::bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size());
          },
          py::arg("index"),
          "The bytes of a sample. Raises SourceError where its file was cut off.");

  module.def(
      "mapped_file",
      [](uintptr_t address, size_t size) {
        return path_text(mapped_file(reinterpret_cast<const void*>(address), size));
      },
      py::arg("address"), py::arg("size"),
      "The path of a file that is mapped to a part of this memory; '' without one.");

  module.def(
      "read_mapped",
      [](uintptr_t address, size_t size) {
        std::vector<uint8_t> bytes(size);
        {
          const WithoutGil unlocked;
          if (!copy_mapped(bytes.data(), reinterpret_cast<const void*>(address), size)) {
            throw SourceError("the file that it is mapped from was cut off, or its disk fails");
          }
        }
        return py::bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      },
      py::arg("address"), py::arg("size"),
      "The bytes at an address that a file is mapped to. Raises SourceError where it was cut off, "
      "which would end the process if Python read it.");

  py::class_<MemorySource, Source, std::shared_ptr<MemorySource>>(
      module, "MemorySource",
      "Samples that lie in memory: `sizes[i]` bytes at `addresses[i]`, uint64 arrays that may be "
      "filled in later. The samples stay where they are as long as `owner` lives, which is kept. "
      "`seek_indices`: addresses and sizes of the seek indices beside them.")
      .def(py::init(&make_memory), py::arg("addresses"), py::arg("sizes"),
           py::arg("owner") = py::none(), py::arg("seek_indices") = py::none(),
           py::keep_alive<1, 2>(), py::keep_alive<1, 3>(), py::keep_alive<1, 4>(),
           py::keep_alive<1, 5>());

  py::class_<PixelSource, Source, std::shared_ptr<PixelSource>>(
      module, "PixelSource",
      "Pictures as pixels: uint8 arrays (pictures, height, width, 3), or (pictures, height, width) "
      "of grey ones, with any strides. Pixels may change at any time; the arrays are kept, and are "
      "not to move.")
      .def(py::init(&make_pixels), py::arg("arrays"), py::keep_alive<1, 2>());

#ifdef FASTLOADER_TEST_HOOKS
  py::class_<DelayedSource, Source, std::shared_ptr<DelayedSource>>(
      module, "DelayedSource", "Another source on a slow disk, for tests.")
      .def(py::init([](std::shared_ptr<Source> source, double seconds) {
             return std::make_shared<DelayedSource>(
                 std::move(source), std::chrono::microseconds(static_cast<int64_t>(seconds * 1e6)));
           }),
           py::arg("source"), py::arg("seconds"), py::keep_alive<1, 2>());
#endif

  py::class_<FolderSource, Source, std::shared_ptr<FolderSource>>(
      module, "FolderSource", "Files whose paths lie one after the other in `paths`.")
      .def(py::init(&make_folder), py::arg("paths"), py::arg("ends"), py::keep_alive<1, 2>(),
           py::keep_alive<1, 3>());
}

// --- members of a tar ---------------------------------------------------------------------------

py::bytes as_bytes(const std::vector<uint64_t>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(uint64_t)};
}

/// (names, their ends, offsets, sizes)
py::tuple tar_members(const py::buffer& data) {
  const py::buffer_info held = data.request();  // until the end: nobody may close it meanwhile
  if (held.itemsize != 1 || held.ndim != 1 || (held.size > 1 && held.strides[0] != 1)) {
    throw InvalidArgument("a tar is bytes without gaps");
  }
  std::string names;
  std::vector<uint64_t> ends;
  std::vector<uint64_t> offsets;
  std::vector<uint64_t> sizes;
  {
    const WithoutGil unlocked;
    for (const TarMember& member :
         read_tar(static_cast<const uint8_t*>(held.ptr), static_cast<size_t>(held.size))) {
      names += member.name;
      ends.push_back(names.size());
      offsets.push_back(member.offset);
      sizes.push_back(member.size);
    }
  }
  return py::make_tuple(py::bytes(names), as_bytes(ends), as_bytes(offsets), as_bytes(sizes));
}

void bind_tar(py::module_& module) {
  module.def(
      "tar_members", &tar_members, py::arg("data"),
      "The regular files of a tar: their names, one after the other; where each name ends, "
      "where each file's bytes begin, and how many there are, as uint64. Raises SourceError, "
      "which names the byte, for what is no whole tar.");
}

// --- pairs of a path and a class ----------------------------------------------------------------

/// Adds a sample's path and class. Returns false for what is no tuple of a path in ASCII and a
/// number of 64 bits, of Python's own types: no Python code runs here.
bool add_sample(PyObject* sample, std::vector<char>& paths, int64_t& target) {
  if (!PyTuple_CheckExact(sample) || PyTuple_GET_SIZE(sample) != 2) return false;
  PyObject* const path = PyTuple_GET_ITEM(sample, 0);
  PyObject* const number = PyTuple_GET_ITEM(sample, 1);
  if (!PyUnicode_CheckExact(path) || !PyUnicode_IS_COMPACT_ASCII(path)) return false;
  if (!PyLong_CheckExact(number)) return false;
  int overflows = 0;
  target = PyLong_AsLongLongAndOverflow(number, &overflows);
  if (overflows != 0) return false;
  const auto* const text = static_cast<const char*>(PyUnicode_DATA(path));
  paths.insert(paths.end(), text, text + PyUnicode_GET_LENGTH(path));
  return true;
}

/// (paths, their ends, classes), or None
py::object flat_samples(const py::list& samples, size_t begin, size_t end) {
  end = std::min(end, samples.size());
  std::vector<char> paths;
  std::vector<uint64_t> ends;
  std::vector<int64_t> targets;
  for (size_t i = begin; i < end; ++i) {
    int64_t target = 0;
    PyObject* const sample = PyList_GET_ITEM(samples.ptr(), static_cast<Py_ssize_t>(i));
    if (!add_sample(sample, paths, target)) return py::none();
    ends.push_back(paths.size());
    targets.push_back(target);
  }
  return py::make_tuple(
      py::bytes(paths.data(), paths.size()), as_bytes(ends),
      py::bytes(reinterpret_cast<const char*>(targets.data()), targets.size() * sizeof(int64_t)));
}

void bind_samples(py::module_& module) {
  module.def(
      "flat_samples", &flat_samples, py::arg("samples"), py::arg("begin"), py::arg("end"),
      "The paths of these elements of a list, one after the other; where each ends, as uint64, and "
      "the classes, as int64. None unless each is a tuple of a str in ASCII and an int.");
}

// --- rows of arrays -----------------------------------------------------------------------------

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

GatherPtr begin_gather(const std::vector<Array>& arrays, const std::vector<Map>& maps,
                       const py::object& /*keep*/, uintptr_t indices, size_t count,
                       size_t threads) {
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

void bind_gather(py::module_& module) {
  py::class_<Gather, GatherPtr>(
      module, "GatherBatch",
      "Rows of arrays on their way into the memory of a batch; dropping it cancels what was not "
      "begun.")
      .def(py::init(&begin_gather), py::arg("arrays"), py::arg("maps"), py::arg("keep"),
           py::kw_only(), py::arg("indices"), py::arg("count"), py::arg("threads"),
           py::keep_alive<1, 4>(),
           "`arrays`: (source address, bytes of a row, bytes from row to row, destination address, "
           "number of its map, whether a file is mapped there); `maps`: (address of int64 indices "
           "or 0, how many, rows of its arrays); `indices`: address of `count` int64 indices, read "
           "here only. `threads` are offered the batch at once; with 0, wait() copies all of it. "
           "`keep` owns sources and destinations. Raises IndexError for an index that an array "
           "does not have.")
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

}  // namespace

void register_sources(py::module_& module) {
  bind_sources(module);
  bind_tar(module);
  bind_samples(module);
  bind_gather(module);
}

}  // namespace fastloader::bindings
