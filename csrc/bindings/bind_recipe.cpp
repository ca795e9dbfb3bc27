#include <pybind11/stl.h>

#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "bindings/register.h"
#include "image/recipe/recipe.h"

namespace py = pybind11;

namespace fastloader::bindings {
namespace {

// In the order of the enums.
const char* const kOrigins[] = {"constant", "uniform", "whole", "normal"};
const char* const kRoundings[] = {"none", "truncate", "nearest"};
const char* const kKinds[] = {"operation", "all", "apply", "choice", "order", "some"};

template <class Enum, size_t kCount>
Enum named(const char* const (&names)[kCount], const py::handle& given) {
  const auto name = given.cast<std::string>();
  for (size_t i = 0; i < kCount; ++i) {
    if (name == names[i]) return static_cast<Enum>(i);
  }
  throw InvalidArgument("a recipe does not know " + name);
}

template <class T>
T member(const py::handle& object, const char* name) {
  return object.attr(name).cast<T>();
}

Number to_number(const py::handle& object) {
  Number number;
  number.from = named<Number::From>(kOrigins, object.attr("origin"));
  number.a = member<double>(object, "a");
  number.b = member<double>(object, "b");
  number.low = member<double>(object, "low");
  number.high = member<double>(object, "high");
  number.scale = member<double>(object, "scale");
  number.offset = member<double>(object, "offset");
  number.round = named<Number::Round>(kRoundings, object.attr("rounding"));
  number.either_sign = member<bool>(object, "either_sign");
  number.after = member<double>(object, "after");
  return number;
}

Step to_step(const py::handle& object) {
  Step step;
  step.kind = named<Step::Kind>(kKinds, object.attr("kind"));
  if (step.kind == Step::Kind::kOperation) {
    step.operation = operation_kind(member<std::string>(object, "operation"));
  }
  for (const py::handle number : object.attr("numbers")) step.numbers.push_back(to_number(number));
  step.probability = member<double>(object, "probability");
  step.weights = member<std::vector<double>>(object, "weights");
  step.count = member<size_t>(object, "count");
  for (const py::handle child : object.attr("children")) step.children.push_back(to_step(child));
  return step;
}

std::vector<std::pair<std::string, std::vector<double>>> draw(const Recipe& recipe, uint64_t seed,
                                                              uint64_t index, uint32_t picture) {
  std::vector<std::pair<std::string, std::vector<double>>> drawn;
  for (Operation& operation : recipe.draw(seed, index, picture)) {
    drawn.emplace_back(name_of(operation.kind), std::move(operation.numbers));
  }
  return drawn;
}

}  // namespace

void register_recipe(py::module_& module) {
  py::class_<Recipe>(module, "Recipe", "What may be done to the pixels of each picture.")
      .def(py::init([](const py::handle& root) { return Recipe(to_step(root)); }), py::arg("root"),
           "`root` is a Step of fastloader.transforms._recipe.")
      .def("draw", &draw, py::arg("seed"), py::arg("index"), py::arg("picture") = 0,
           "The operations (name, numbers) of a picture, one after the other.");
  py::list names;
  for (size_t kind = 0; kind < static_cast<size_t>(Operation::Kind::kCount); ++kind) {
    names.append(name_of(static_cast<Operation::Kind>(kind)));
  }
  module.attr("OPERATIONS") = py::tuple(names);
}

}  // namespace fastloader::bindings
