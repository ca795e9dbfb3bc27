#include <pybind11/stl.h>

#include <memory>
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
constexpr const char* kOrigins[] = {"constant", "uniform", "table", "normal"};
constexpr const char* kUnits[] = {"one", "width", "height"};
constexpr const char* kRoundings[] = {"none", "truncate", "nearest", "single"};
constexpr const char* kKinds[] = {"operation", "sized", "all",   "apply", "choice",
                                  "order",     "some",  "first", "mix"};
constexpr const char* kMixings[] = {"sum", "blend", "blends"};
constexpr const char* kEffects[] = {"colour", "geometry", "mix"};
static_assert(std::size(kKinds) == static_cast<size_t>(Step::Kind::kCount));
static_assert(std::size(kMixings) == static_cast<size_t>(Mixing::kBlends) + 1);
static_assert(std::size(kEffects) == static_cast<size_t>(Operation::Effect::kMix) + 1);
static_assert(std::size(kOrigins) == static_cast<size_t>(Number::From::kNormal) + 1);
static_assert(std::size(kUnits) == static_cast<size_t>(Number::Unit::kHeight) + 1);
static_assert(std::size(kRoundings) == static_cast<size_t>(Number::Round::kSingle) + 1);

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
  number.unit = named<Number::Unit>(kUnits, object.attr("unit"));
  number.round = named<Number::Round>(kRoundings, object.attr("rounding"));
  number.either_sign = member<bool>(object, "either_sign");
  number.after = member<double>(object, "after");
  number.values = member<std::vector<double>>(object, "values");
  return number;
}

/// Counts while it copies: a tree of Python's may be endless, since it may hold itself.
Step to_step(const py::handle& object, size_t depth, size_t& steps) {
  if (++steps > kMostSteps) {
    throw InvalidArgument("a recipe of more than " + std::to_string(kMostSteps) + " steps");
  }
  if (depth > kMostStepDepth) {
    throw InvalidArgument("steps within steps, more than " + std::to_string(kMostStepDepth) +
                          " deep");
  }
  Step step;
  step.kind = named<Step::Kind>(kKinds, object.attr("kind"));
  const auto name = member<std::string>(object, "operation");
  if (step.kind == Step::Kind::kOperation) step.operation = operation_kind(name);
  if (step.kind == Step::Kind::kSized) step.sized = sized_kind(name);
  if (step.kind == Step::Kind::kMix) step.mixing = named<Mixing>(kMixings, py::str(name));
  step.alpha = member<double>(object, "alpha");
  for (const py::handle number : object.attr("numbers")) step.numbers.push_back(to_number(number));
  step.probability = member<double>(object, "probability");
  step.weights = member<std::vector<double>>(object, "weights");
  const auto count = member<int64_t>(object, "count");
  if (count < 0) throw InvalidArgument("a choice of " + std::to_string(count) + " steps");
  step.count = static_cast<size_t>(count);
  for (const py::handle child : object.attr("children")) {
    step.children.push_back(to_step(child, depth + 1, steps));
  }
  return step;
}

std::shared_ptr<const Recipe> make_recipe(const py::handle& given) {
  std::vector<Step> steps;
  size_t counted = 0;
  for (const py::handle step : given) steps.push_back(to_step(step, 1, counted));
  return std::make_shared<const Recipe>(std::move(steps));
}

std::vector<std::pair<std::string, std::vector<double>>> draw_operations(
    const Recipe& recipe, uint64_t seed, uint64_t index, uint32_t picture,
    const std::pair<size_t, size_t>& size) {
  std::vector<std::pair<std::string, std::vector<double>>> drawn;
  for (Operation& operation : recipe.draw(seed, index, picture, {size.first, size.second})) {
    drawn.emplace_back(name_of(operation.kind), std::move(operation.numbers));
  }
  return drawn;
}

py::dict operations() {
  py::dict found;
  for (size_t number = 0; number < static_cast<size_t>(Operation::Kind::kCount); ++number) {
    const auto kind = static_cast<Operation::Kind>(number);
    found[name_of(kind)] = kEffects[static_cast<size_t>(effect_of(kind))];
  }
  return found;
}

py::tuple sized_steps() {
  py::list found;
  for (size_t kind = 0; kind < static_cast<size_t>(Sized::kCount); ++kind) {
    found.append(name_of(static_cast<Sized>(kind)));
  }
  return py::tuple(found);
}

}  // namespace

void register_recipe(py::module_& module) {
  py::class_<Recipe, std::shared_ptr<Recipe>>(module, "Recipe",
                                              "What may be done to the pixels of each picture.")
      .def(py::init([](const py::handle& steps) {
             return std::const_pointer_cast<Recipe>(make_recipe(steps));
           }),
           py::arg("steps"), "`steps` are Steps of fastloader.transforms._recipe.")
      .def("draw", &draw_operations, py::arg("seed"), py::arg("index"), py::arg("picture"),
           py::arg("size"),
           "The operations (name, numbers) of a picture of this (height, width), one after the "
           "other.");
  module.attr("OPERATIONS") = operations();
  module.attr("SIZED") = sized_steps();
}

}  // namespace fastloader::bindings
