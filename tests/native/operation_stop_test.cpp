// Operations end early once nobody wants their picture any more.

#include <atomic>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "check.h"
#include "image/dispatch.h"
#include "image/ops/families.h"
#include "image/ops/kernels/colour.h"
#include "image/ops/kernels/filter.h"
#include "image/ops/kernels/warp.h"
#include "image/ops/operation.h"

namespace fastloader {
namespace {

using namespace testing;

using Kind = Operation::Kind;

// Kernels that count their calls and set the flag in the third one.
std::atomic<bool> stop{false};
size_t calls = 0;

void count_call() {
  if (++calls == 3) stop = true;
}

const FilterKernels kCountedFilters = {
    [](const RowsAround& rows, const HalfKernel& kernel, size_t bytes, float* out) {
      count_call();
      kFilterScalar.blur_down(rows, kernel, bytes, out);
    },
    kFilterScalar.blur_along,
    [](const uint8_t* above, const uint8_t* row, const uint8_t* below, size_t bytes, float factor,
       uint8_t* out) {
      count_call();
      kFilterScalar.sharpen(above, row, below, bytes, factor, out);
    },
    kFilterScalar.box_pass,
};

const ColourKernels kCountedColours = {
    [](uint8_t other, float factor, uint8_t* bytes, size_t count) {
      count_call();
      kColourScalar.blend(other, factor, bytes, count);
    },
    [](const uint8_t* rgb, size_t pixels) {
      count_call();
      return kColourScalar.sum_of_greys(rgb, pixels);
    },
    [](float factor, uint8_t* rgb, size_t pixels) {
      count_call();
      kColourScalar.saturate(factor, rgb, pixels);
    },
    [](uint8_t* rgb, size_t pixels) {
      count_call();
      kColourScalar.grayscale(rgb, pixels);
    },
    [](uint8_t shift, uint8_t* rgb, size_t pixels) {
      count_call();
      kColourScalar.hue(shift, rgb, pixels);
    },
};

const WarpKernels kCountedWarps = {
    kWarpScalar.widen,
    [](const WarpSource& source, const double* x, const double* y, size_t count, uint8_t* to) {
      count_call();
      kWarpScalar.bilinear(source, x, y, count, to);
    },
    [](const WarpSource& source, const double* x, const double* y, size_t count, uint8_t* to) {
      count_call();
      kWarpScalar.bicubic(source, x, y, count, to);
    },
};

Isa counted_isa() {
  Isa isa = isa_by_name("scalar");
  isa.colour = &kCountedColours;
  isa.filter = &kCountedFilters;
  isa.warp = &kCountedWarps;
  return isa;
}

void put_grey(const ImageSize& size, Canvas& canvas) {
  std::memset(canvas.begin(size), 99, size.height * size.width * Canvas::kRgb);
}

TEST(a_flag_that_is_set_meanwhile_ends_an_operation_within_a_few_rows) {
  const Isa isa = counted_isa();
  Canvas canvas(isa);
  const std::vector<Operation> operations = {
      {Kind::kGaussianBlur, {3, 3, 1}},
      {Kind::kSharpness, {2}},
      {Kind::kAffine, {1, 0.1, 0, 0.1, 1, 0, 2, 0, 0, 0}},
      {Kind::kPerspective, {1, 0.1, 0, 0.1, 1, 0, 0.001, 0, 3, 0, 0, 0}},
      {Kind::kRotate, {9, 2, 0, 0, 0, 0}},
      {Kind::kBrightness, {2}},
      {Kind::kContrast, {2}},
      {Kind::kSaturation, {2}},
      {Kind::kGrayscale, {}},
      {Kind::kHue, {0.1}},
  };
  // Narrow, so that a row is one call; and high, so that colours, too, go in many pieces.
  const ImageSize size{30000, 20};
  for (const Operation& operation : operations) {
    put_grey(size, canvas);
    stop = false;
    calls = 0;
    EXPECT_THROW(apply(operation, canvas, &stop), Stopped, "not wanted");
    if (calls != 3) {
      throw Failure{std::string(name_of(operation.kind)) + " went on to call " +
                    std::to_string(calls)};
    }
    // A later operation does not look at the flag of this one.
    put_grey({4, 4}, canvas);
    apply(operation, canvas);
  }
}

/// Operations by themselves, without the look at the flag that apply() begins with: all that is
/// left is what they do every few rows. None of these runs on kernels that a test could count.
TEST(operations_look_at_the_flag_of_their_canvas) {
  using Call = void (*)(Canvas& canvas);
  const std::vector<std::pair<const char*, Call>> operations = {
      {"autocontrast", autocontrast},
      {"equalize", equalize},
      {"blur of rows", [](Canvas& canvas) { pillow_blur(2, 0, canvas); }},
      {"blur of columns", [](Canvas& canvas) { pillow_blur(0, 2, canvas); }},
      {"hflip", hflip},
      {"crop", [](Canvas& canvas) { crop({0, 0, 4, 4}, canvas); }},
      {"pad", [](Canvas& canvas) { pad({1, 1, 1, 1, 0, 0, 0, 0}, canvas); }},
      {"pad that continues", [](Canvas& canvas) { pad({1, 1, 1, 1, 2, 0, 0, 0}, canvas); }},
      {"scale", [](Canvas& canvas) { affine({1.5, 0, 0, 0, 1.5, 0, 0, 0, 0, 0}, canvas); }},
      {"shear", [](Canvas& canvas) { affine({1, 0.1, 0, 0.1, 1, 0, 0, 0, 0, 0}, canvas); }},
      {"far affine", [](Canvas& canvas) { affine({1e9, 1, 0, 1, 1e9, 0, 0, 0, 0, 0}, canvas); }},
      {"perspective",
       [](Canvas& canvas) { perspective({1, 0, 0, 0, 1, 0, 0.1, 0, 0, 0, 0, 0}, canvas); }},
      {"quarter turn", [](Canvas& canvas) { rotate({90, 0, 0, 0, 0, 0}, canvas); }},
      {"half turn", [](Canvas& canvas) { rotate({180, 0, 0, 0, 0, 0}, canvas); }},
      {"nearest resize", [](Canvas& canvas) { resize({9, 7, 0}, canvas); }},
      {"resize", [](Canvas& canvas) { resize({9, 7, 2}, canvas); }},
      {"mix", [](Canvas& canvas) { mix_begin(1, canvas); }},
  };
  const ImageSize size{8, 8};
  const std::atomic<bool> always{true};
  for (const auto& [name, call] : operations) {
    Canvas canvas;
    put_grey(size, canvas);
    call(canvas);
    put_grey(size, canvas);
    canvas.set_stop(&always);
    bool stopped = false;
    try {
      call(canvas);
    } catch (const Stopped&) {
      stopped = true;
    }
    if (!stopped) throw Failure{std::string(name) + " does not look at the flag"};
  }
}

TEST(a_flag_that_is_set_leaves_the_picture) {
  Canvas canvas;
  put_grey({2, 2}, canvas);
  const std::atomic<bool> always{true};
  EXPECT_THROW(apply({Kind::kInvert, {}}, canvas, &always), Stopped, "not wanted");
  EXPECT_EQ(static_cast<int>(canvas.pixels()[0]), 99);
}

TEST(a_flag_that_is_not_set_changes_nothing) {
  Canvas canvas;
  put_grey({2, 2}, canvas);
  const std::atomic<bool> never{false};
  apply({Kind::kInvert, {}}, canvas, &never);
  EXPECT_EQ(static_cast<int>(canvas.pixels()[0]), 255 - 99);
}

}  // namespace
}  // namespace fastloader

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
