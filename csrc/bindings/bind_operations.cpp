#include <pybind11/stl.h>

#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "bindings/gil.h"
#include "bindings/register.h"
#include "image/ops/operation.h"

namespace py = pybind11;

namespace fastloader::bindings {
namespace {

using HeightWidth = std::pair<size_t, size_t>;
using Named = std::pair<std::string, std::vector<double>>;

std::pair<py::bytes, HeightWidth> apply_operations(const py::bytes& picture,
                                                   const HeightWidth& size,
                                                   const std::vector<Named>& named) {
  const std::string_view pixels(picture);
  const ImageSize given{size.first, size.second};
  if (given.height == 0 || given.width == 0 || given.height > kMaxImageEdge ||
      given.width > kMaxImageEdge || pixels.size() != given.height * given.width * Canvas::kRgb) {
    throw InvalidArgument("a picture of " + std::to_string(size.second) + "x" +
                          std::to_string(size.first) + " pixels in " +
                          std::to_string(pixels.size()) + " bytes");
  }
  std::vector<Operation> operations;
  for (const auto& [name, numbers] : named) {
    operations.push_back({operation_kind(name), numbers});
    validate(operations.back());
  }
  Canvas canvas;
  {
    const WithoutGil unlocked;
    std::memcpy(canvas.begin(given), pixels.data(), pixels.size());
    for (const Operation& operation : operations) apply(operation, canvas);
  }
  const ImageSize& made = canvas.size();
  return {py::bytes(reinterpret_cast<const char*>(canvas.pixels()), canvas.bytes()),
          {made.height, made.width}};
}

}  // namespace

void register_operations(py::module_& module) {
  module.def("apply_operations", &apply_operations, py::arg("picture"), py::arg("size"),
             py::arg("operations"),
             "What the operations (name, numbers), one after the other, make of RGB bytes of this "
             "(height, width): bytes, and their size.");
}

}  // namespace fastloader::bindings
