#include <pybind11/stl.h>

#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/registry.h"
#include "base/error.h"
#include "bindings/enum.h"
#include "bindings/gil.h"
#include "bindings/register.h"
#include "image/dispatch.h"
#include "image/normalize/augment.h"
#include "image/normalize/normalize.h"
#include "image/ops/operation.h"
#include "image/recipe/recipe.h"
#include "image/resize/resizer.h"

namespace py = pybind11;

namespace fastloader::bindings {
namespace {

// --- normalising --------------------------------------------------------------------------------

NormalizeSpec make_spec(const std::array<size_t, 4>& nchw, bool in_nhwc, bool out_nhwc,
                        FloatType dtype, const std::vector<float>& scale,
                        const std::vector<float>& bias) {
  NormalizeSpec spec;
  spec.batch = nchw[0];
  if (nchw[1] < 1 || nchw[1] > kMaxChannels) {
    throw InvalidArgument("normalise: " + std::to_string(nchw[1]) + " channels; 1 to " +
                          std::to_string(kMaxChannels) + " are supported");
  }
  spec.channels = static_cast<int>(nchw[1]);
  spec.height = nchw[2];
  spec.width = nchw[3];
  spec.in_layout = in_nhwc ? Layout::kNhwc : Layout::kNchw;
  spec.out_layout = out_nhwc ? Layout::kNhwc : Layout::kNchw;
  spec.out_type = dtype;
  if (scale.size() != nchw[1] || bias.size() != nchw[1]) {
    throw InvalidArgument("normalise: one scale and one bias per channel are needed");
  }
  for (size_t c = 0; c < nchw[1]; ++c) {
    spec.scale[c] = scale[c];
    spec.bias[c] = bias[c];
  }
  validate(spec);
  return spec;
}

AugmentSpec make_augment_spec(const NormalizeSpec& normalize, size_t in_batch, size_t max_boxes,
                              Fill fill, bool blend_bytes) {
  AugmentSpec spec;
  spec.normalize = normalize;
  spec.in_batch = in_batch;
  spec.max_boxes = max_boxes;
  spec.fill = fill;
  spec.blend = blend_bytes ? Blend::kBytes : Blend::kFloats;
  validate(spec);
  return spec;
}

void bind_normalize(py::module_& module) {
  Enum<FloatType>::bind(module, "FloatType", "Of normalised elements.",
                        {{"FLOAT32", FloatType::kFloat32},
                         {"FLOAT16", FloatType::kFloat16},
                         {"BFLOAT16", FloatType::kBFloat16}});
  Enum<Fill>::bind(
      module, "Fill",
      "Of erased boxes: 0, the records' constant of each channel, one normal deviate for each box "
      "and channel, or for each value.",
      {{"ZERO", Fill::kZero},
       {"CONST", Fill::kConstant},
       {"RAND", Fill::kPerBox},
       {"PIXEL", Fill::kPerElement}});
  py::class_<NormalizeSpec>(module, "NormalizeSpec",
                            "uint8 batch -> float batch; y = fma(x, scale[c], bias[c]) in float32, "
                            "rounded once. `nchw` is the shape torch shows; the flags say how the "
                            "bytes lie.")
      .def(py::init(&make_spec), py::kw_only(), py::arg("nchw"), py::arg("in_nhwc"),
           py::arg("out_nhwc"), py::arg("dtype"), py::arg("scale"), py::arg("bias"))
      .def_property_readonly("in_bytes", &NormalizeSpec::in_bytes)
      .def_property_readonly("out_bytes", &NormalizeSpec::out_bytes);

  py::class_<AugmentSpec>(module, "AugmentSpec",
                          "Normalises, erases and mixes by records. `normalize` describes the "
                          "batch that comes out; `in_batch` counts the images that go in.")
      .def(py::init(&make_augment_spec), py::kw_only(), py::arg("normalize"), py::arg("in_batch"),
           py::arg("max_boxes"), py::arg("fill"), py::arg("blend_bytes"))
      .def_property_readonly("record_bytes", &AugmentSpec::record_bytes);

  module.def(
      "active_isa", &active_isa_name,
      "Name of the instruction set in use. Raises ValueError when FASTLOADER_FORCE_ISA names "
      "one that is not to be had here.");
  module.def(
      "normalize",
      [](const NormalizeSpec& spec, uintptr_t source, uintptr_t destination,
         const std::optional<std::string>& isa) {
        const auto* in = reinterpret_cast<const uint8_t*>(source);
        auto* out = reinterpret_cast<void*>(destination);
        const WithoutGil unlocked;
        if (isa) {
          normalize_with_isa(*isa, spec, in, out);
        } else {
          normalize(spec, in, out);
        }
      },
      py::arg("spec"), py::kw_only(), py::arg("source"), py::arg("destination"),
      py::arg("isa") = py::none(),
      "Normalises host memory on the calling thread. The caller keeps both ranges alive and the "
      "destination unshared until it returns.");
}

// --- a device's stages --------------------------------------------------------------------------

// The prefetch thread's calls on the device, one at a time, so that benchmarks can tell what each
// costs. Loaders do not use them.

void normalize_on_device(const NormalizeSpec& spec, const std::string& backend, int device,
                         uintptr_t stream, uintptr_t source, uintptr_t destination) {
  const WithoutGil unlocked;
  const std::unique_ptr<Stream> external = open_backend(backend).wrap_external(device, stream);
  external->normalize_async(spec, reinterpret_cast<const void*>(source),
                            reinterpret_cast<void*>(destination));
  external->check();
}

void bind_device_stages(py::module_& module) {
  module.def("normalize_on_device", &normalize_on_device, py::arg("spec"), py::kw_only(),
             py::arg("backend"), py::arg("device"), py::arg("stream"), py::arg("source"),
             py::arg("destination"),
             "Queues the kernel that loaders run, on a stream made elsewhere (0: the legacy "
             "default stream; on the twin, the calling thread). Both addresses are the device's "
             "and multiples of 16; the caller keeps the memory until the stream is past it.");
}

// --- operations ---------------------------------------------------------------------------------

using HeightWidth = std::pair<size_t, size_t>;
using Named = std::pair<std::string, std::vector<double>>;

std::pair<py::bytes, HeightWidth> apply_operations(const py::bytes& picture,
                                                   const HeightWidth& size,
                                                   const std::vector<Named>& named,
                                                   ResizeOrder pass_order) {
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
  canvas.set_resize_order(pass_order);
  {
    const WithoutGil unlocked;
    std::memcpy(canvas.begin(given), pixels.data(), pixels.size());
    for (const Operation& operation : operations) apply(operation, canvas);
  }
  const ImageSize& made = canvas.size();
  return {py::bytes(reinterpret_cast<const char*>(canvas.pixels()), canvas.bytes()),
          {made.height, made.width}};
}

void bind_operations(py::module_& module) {
  // Before register_image_job, whose default is one of these.
  Enum<ResizeOrder>::bind(module, "PassOrder",
                          "Which pass of a resize comes first, by Pillow's version.",
                          {{"PILLOW13", ResizeOrder::kPillow13},
                           {"PILLOW12_2", ResizeOrder::kPillow12_2},
                           {"HORIZONTAL_FIRST", ResizeOrder::kHorizontalFirst}});
  module.def("apply_operations", &apply_operations, py::arg("picture"), py::arg("size"),
             py::arg("operations"),
             py::arg_v("pass_order", ResizeOrder::kPillow13, "PassOrder.PILLOW13"),
             "What the operations (name, numbers), one after the other, make of RGB bytes of this "
             "(height, width): bytes, and their size. A resize makes its passes in this order.");
}

// --- recipes ------------------------------------------------------------------------------------

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

template <class Value, size_t kCount>
Value named(const char* const (&names)[kCount], const py::handle& given) {
  const auto name = given.cast<std::string>();
  for (size_t i = 0; i < kCount; ++i) {
    if (name == names[i]) return static_cast<Value>(i);
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

std::vector<Named> draw_operations(const Recipe& recipe, uint64_t seed, uint64_t index,
                                   uint32_t picture, const HeightWidth& size) {
  std::vector<Named> drawn;
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

void bind_recipe(py::module_& module) {
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

}  // namespace

void register_pixels(py::module_& module) {
  bind_normalize(module);
  bind_device_stages(module);
  bind_operations(module);
  bind_recipe(module);
}

}  // namespace fastloader::bindings
