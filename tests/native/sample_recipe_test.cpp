// Pictures that a recipe works on: what comes out is what its operations make of the pixels that
// come without it, in every form, and a picture that cannot be done so is refused by name.

#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "check.h"
#include "gated_source.h"
#include "image/normalize/normalize.h"
#include "image/resize/split_rgb.h"
#include "pipeline/sample_decoder.h"

namespace fastloader {
namespace {

using namespace testing;

using Output = ImageJob::Output;
using Scale = ImageTransform::Scale;
using Bytes = std::vector<uint8_t>;

constexpr ImageSize kSize{21, 17};

Number number(double value) {
  Number made;
  made.a = value;
  return made;
}

Step operation(Operation::Kind kind, std::vector<Number> numbers) {
  Step step;
  step.kind = Step::Kind::kOperation;
  step.operation = kind;
  step.numbers = std::move(numbers);
  return step;
}

Number between(double low, double high) {
  Number made;
  made.from = Number::From::kUniform;
  made.a = low;
  made.b = high;
  return made;
}

/// Colour, a crop that changes the size, and a flip for every second picture.
std::vector<Step> steps() {
  Step crop;
  crop.kind = Step::Kind::kSized;
  crop.sized = Sized::kRandomCrop;
  for (const double value : {21.0, 17.0, 1.0, 2.0, 2.0, 2.0, 2.0, 0.0, 9.0, 99.0, 199.0}) {
    crop.numbers.push_back(number(value));
  }
  Step flip;
  flip.kind = Step::Kind::kApply;
  flip.probability = 0.5;
  flip.children = {operation(Operation::Kind::kHflip, {})};
  return {operation(Operation::Kind::kBrightness, {between(0, 2)}), crop, flip,
          operation(Operation::Kind::kAutocontrast, {})};
}

ImageJob job_of(std::vector<Step> recipe, Output output = Output::kNhwcBytes) {
  ImageJob job;
  job.source = std::make_shared<MemorySource>(small_pictures(6));
  job.transform.random_crop = CropRange{};
  job.transform.scale = Scale::kExact;
  job.transform.exact = {23, 16};
  job.transform.vertical_flip = 0.5;
  job.recipe = std::make_shared<const Recipe>(std::move(recipe));
  job.output_size = kSize;
  job.output = output;
  job.normalize.batch = 1;
  job.normalize.height = kSize.height;
  job.normalize.width = kSize.width;
  job.normalize.channels = 3;
  for (int c = 0; c < 3; ++c) job.normalize.scale[c] = 0.25f;
  return job;
}

Bytes finished(const ImageJob& job, const Bytes& pixels) {
  Bytes out(job.sample_bytes());
  if (job.output == Output::kNhwcBytes) return pixels;
  if (job.output == Output::kNchwBytes) {
    split_rgb(pixels.data(), pixels.size() / 3, out.data());
  } else {
    normalize(job.normalize, pixels.data(), out.data());
  }
  return out;
}

TEST(a_recipe_works_on_the_pixels_that_come_without_it) {
  SampleDecoder decoder;  // one for all, as a thread's is
  Canvas canvas;
  for (const Output output : {Output::kNhwcBytes, Output::kNchwBytes, Output::kNormalized}) {
    const ImageJob job = job_of(steps(), output);
    validate(job);
    ImageJob plain = job;
    plain.recipe = nullptr;
    plain.output = Output::kNhwcBytes;
    for (uint64_t seed = 0; seed < 40; ++seed) {
      const uint64_t index = seed % 6;
      Bytes before(plain.sample_bytes());
      decoder.decode(plain, index, seed, before.data());
      const SampleDraw drawn = decoder.draw(job, index, {index, seed});
      EXPECT(drawn.operations.size() >= 4);
      std::memcpy(canvas.begin(job.transform.exact), before.data(), before.size());
      for (const Operation& each : drawn.operations) apply(each, canvas);
      const Bytes wanted = finished(job, Bytes(canvas.pixels(), canvas.pixels() + canvas.bytes()));
      Bytes out(job.sample_bytes());
      EXPECT_EQ(out.size(), wanted.size());
      decoder.decode(job, index, seed, out.data());
      EXPECT(out == wanted);
    }
  }
}

TEST(pixels_of_another_decoder_get_the_same_recipe) {
  const ImageJob job = job_of(steps());
  const ImageSize size{50, 40};
  const Bytes pixels(size.height * size.width * 3, 120);
  SampleDecoder decoder;
  Bytes out(job.sample_bytes());
  decoder.transform({3, 8}, {&job, 0, out.data()}, pixels.data(), size);
  Canvas canvas;
  std::memset(canvas.begin(job.transform.exact), 120, 23 * 16 * 3);
  for (const Operation& each : draw_sample(job, size, 3, 8).operations) apply(each, canvas);
  EXPECT(out == Bytes(canvas.pixels(), canvas.pixels() + canvas.bytes()));
}

TEST(a_whole_picture_may_be_what_the_recipe_begins_with) {
  Step resize = operation(Operation::Kind::kResize, {number(21), number(17), number(2)});
  ImageJob job = job_of({operation(Operation::Kind::kInvert, {}), resize});
  job.transform = ImageTransform{};
  validate(job);
  SampleDecoder decoder;
  Bytes out(job.sample_bytes());
  decoder.decode(job, 1, 0, out.data());
  Step same = operation(Operation::Kind::kInvert, {});
  job.recipe = std::make_shared<const Recipe>(std::vector<Step>{same});
  EXPECT_THROW(decoder.decode(job, 1, 0, out.data()), InvalidArgument,
               "of this one, where all are to be 17x21");
}

TEST(jobs_whose_pictures_have_no_one_size_are_refused) {
  ImageJob job = job_of({operation(Operation::Kind::kInvert, {})});
  job.output_size = {};
  EXPECT_THROW(validate(job), InvalidArgument, "different sizes");
  job.output_size = {kMaxImageEdge + 1, 1};
  EXPECT_THROW(validate(job), InvalidArgument, "at most");
  job.recipe = nullptr;
  job.output_size = {};
  job.transform = ImageTransform{};
  EXPECT_THROW(validate(job), InvalidArgument, "different sizes");
}

TEST(a_step_that_the_picture_does_not_allow_is_refused) {
  Step crop;
  crop.kind = Step::Kind::kSized;
  crop.sized = Sized::kRandomCrop;
  for (const double value : {24.0, 17.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0}) {
    crop.numbers.push_back(number(value));
  }
  const ImageJob job = job_of({crop});
  SampleDecoder decoder;
  Bytes out(job.sample_bytes());
  EXPECT_THROW(decoder.decode(job, 0, 0, out.data()), InvalidArgument, "pad_if_needed");
}

TEST(a_stopped_picture_ends_between_two_operations) {
  const ImageJob job = job_of(steps());
  SampleDecoder decoder;
  Bytes out(job.sample_bytes());
  const std::atomic<bool> stop{true};
  EXPECT_THROW(decoder.decode(job, 0, 0, out.data(), &stop), Stopped, "");
}

TEST(a_thread_gives_back_what_only_a_large_picture_needed) {
  ImageJob job =
      job_of({operation(Operation::Kind::kResize, {number(6000), number(6000), number(0)}),
              operation(Operation::Kind::kResize, {number(21), number(17), number(2)})});
  SampleDecoder decoder;
  Bytes out(job.sample_bytes());
  decoder.decode(job, 0, 0, out.data());
  EXPECT(decoder.scratch_bytes() < size_t{1} << 24);
}

}  // namespace
}  // namespace fastloader

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
