#include <pybind11/pybind11.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "bindings/gil.h"
#include "bindings/register.h"
#include "source/tar.h"

namespace py = pybind11;

namespace fastloader::bindings {
namespace {

py::bytes numbers_of(const std::vector<uint64_t>& numbers) {
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
  return py::make_tuple(py::bytes(names), numbers_of(ends), numbers_of(offsets), numbers_of(sizes));
}

}  // namespace

void register_tar(py::module_& module) {
  module.def(
      "tar_members", &tar_members, py::arg("data"),
      "The regular files of a tar: their names, one after the other; where each name ends, "
      "where each file's bytes begin, and how many there are, as uint64. Raises SourceError, "
      "which names the byte, for what is no whole tar.");
}

}  // namespace fastloader::bindings
