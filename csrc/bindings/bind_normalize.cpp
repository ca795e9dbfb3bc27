#include <pybind11/stl.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "bindings/enum.h"
#include "bindings/gil.h"
#include "bindings/register.h"
#include "image/dispatch.h"
#include "image/normalize/augment.h"
#include "image/normalize/normalize.h"

namespace py = pybind11;

namespace fastloader::bindings {
namespace {

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

}  // namespace

void register_normalize(py::module_& module) {
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

}  // namespace fastloader::bindings
