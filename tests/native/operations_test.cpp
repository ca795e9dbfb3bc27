#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.h"
#include "check.h"
#include "counted_allocations.h"
#include "image/ops/operation.h"
#include "operation_samples.h"

namespace fastloader {
namespace {

using namespace testing;

using Bytes = std::vector<uint8_t>;
using Kind = Operation::Kind;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Bytes picture_on(Canvas& canvas) {
  return Bytes(canvas.pixels(), canvas.pixels() + canvas.bytes());
}

void put(const ImageSize& size, const Bytes& picture, Canvas& canvas) {
  std::memcpy(canvas.begin(size), picture.data(), picture.size());
}

Bytes random_picture(const ImageSize& size, Random& random) {
  return random_image(size.width, size.height, Canvas::kRgb, random).bytes;
}

/// What `call` says when it refuses, or nothing.
template <class Call>
std::optional<std::string> refusal(const Call& call) {
  try {
    call();
    return std::nullopt;
  } catch (const InvalidArgument& error) {
    return error.what();
  }
}

bool is_valid(const Operation& operation) {
  return !refusal([&] { validate(operation); }).has_value();
}

/// Applies the operation to the canvas, whose memory has seen other pictures, and to one of its
/// own. Both must agree with each other and with size_after(). Returns whether the size allows it.
bool apply_and_compare(const Operation& operation, Canvas& canvas) {
  const ImageSize size = canvas.size();
  const std::string name = describe(operation, size);
  const Bytes before = picture_on(canvas);
  Canvas fresh;
  put(size, before, fresh);
  std::optional<ImageSize> told_size;
  const auto told = refusal([&] { told_size = size_after(operation, size); });
  const auto refused = refusal([&] { apply(operation, canvas); });
  const auto refused_fresh = refusal([&] { apply(operation, fresh); });
  if (told != refused || refused != refused_fresh) {
    throw Failure{name + " is refused by some only: " + told.value_or("taken") + "; " +
                  refused.value_or("taken") + "; " + refused_fresh.value_or("taken")};
  }
  const ImageSize expected = told_size.value_or(size);
  if (!(canvas.size() == expected) || !(fresh.size() == expected)) {
    throw Failure{name + " makes another size than size_after() tells"};
  }
  if (picture_on(canvas) != picture_on(fresh)) {
    throw Failure{name + " depends on what was on the canvas before"};
  }
  if (told && picture_on(canvas) != before) throw Failure{name + " changes what it refuses"};
  return !told;
}

// ---- What comes out -----------------------------------------------------------------------------

TEST(a_chain_on_one_canvas_equals_single_operations_on_canvases_of_their_own) {
  Random random(1);
  OperationSamples samples(random);
  Canvas canvas;
  std::vector<size_t> applied(kOperationKinds);
  for (int chain = 0; chain < 3000; ++chain) {
    const ImageSize size{random_edge(random), random_edge(random)};
    put(size, random_picture(size, random), canvas);
    for (size_t left = random.between(1, 8); left > 0; --left) {
      const Operation operation = samples.make(canvas.size());
      validate(operation);
      if (!apply_and_compare(operation, canvas)) continue;
      ++applied[static_cast<size_t>(operation.kind)];
      if (canvas.size().height > kMostEdge || canvas.size().width > kMostEdge) break;
    }
  }
  for (size_t kind = 0; kind < kOperationKinds; ++kind) {
    EXPECT(applied[kind] > 200 || effect_of(static_cast<Kind>(kind)) == Operation::Effect::kMix);
  }
}

TEST(every_operation_takes_every_small_size) {
  Random random(2);
  OperationSamples samples(random);
  Canvas canvas;
  for (size_t height = 1; height <= 7; ++height) {
    for (size_t width = 1; width <= 7; ++width) {
      const ImageSize size{height, width};
      for (size_t kind = 0; kind < kOperationKinds; ++kind) {
        if (effect_of(static_cast<Kind>(kind)) == Operation::Effect::kMix) continue;
        put(size, random_picture(size, random), canvas);
        apply_and_compare(samples.make(static_cast<Kind>(kind), size), canvas);
      }
    }
  }
}

TEST(a_resize_follows_the_order_of_passes_that_the_canvas_has) {
  Random random(3);
  Canvas canvas;
  size_t differs = 0;
  for (int round = 0; round < 100; ++round) {
    const bool thin = random.one_in(2);
    const ImageSize size{random.between(110, 250), thin ? 1 : random.between(1, 20)};
    const Bytes picture = random_picture(size, random);
    const ImageSize made{random.between(1, 90), random.between(2, 40)};
    const Operation resize{Kind::kResize,
                           {static_cast<double>(made.height), static_cast<double>(made.width), 2}};
    Image image(size.width, size.height, Canvas::kRgb);
    image.bytes = picture;
    Bytes first;
    for (const ResizeOrder order :
         {ResizeOrder::kHorizontalFirst, ResizeOrder::kPillow12_2, ResizeOrder::kPillow13}) {
      ResizeSpec spec = make_spec(size.width, size.height, made.width, made.height);
      spec.order = order;
      canvas.set_resize_order(order);
      put(size, picture, canvas);
      apply(resize, canvas);
      EXPECT(picture_on(canvas) == reference_resize(spec, image).bytes);
      if (first.empty()) first = picture_on(canvas);
      if (picture_on(canvas) != first) ++differs;
    }
  }
  EXPECT(differs > 20);
  EXPECT(Canvas().resize_order() == ResizeOrder::kPillow13);
}

TEST(nothing_is_allocated_for_pictures_that_the_canvas_has_room_for) {
  Random random(4);
  OperationSamples samples(random);
  const ImageSize size{41, 53};
  const Bytes picture = random_picture(size, random);
  std::vector<Operation> operations;
  while (operations.size() < 400) {
    const Operation operation = samples.make(size);
    if (!refusal([&] { size_after(operation, size); })) operations.push_back(operation);
  }
  Canvas canvas;
  size_t kept = 0;
  size_t before = 0;
  // Three times: an odd number of changes between front and back makes each the other's successor.
  for (int epoch = 0; epoch < 3; ++epoch) {
    kept = canvas.scratch_bytes();
    before = allocations;
    for (const Operation& operation : operations) {
      put(size, picture, canvas);
      apply(operation, canvas);
    }
  }
  EXPECT_EQ(allocations.load(), before);
  EXPECT_EQ(canvas.scratch_bytes(), kept);
  EXPECT(kept > 2 * picture.size());
}

// ---- Mixes --------------------------------------------------------------------------------------

/// What families.h says of a mix, one byte after the other.
class MixByBytes {
 public:
  void apply(const Operation& operation, Canvas& canvas) {
    const float number = operation.numbers.empty() ? 0 : static_cast<float>(operation.numbers[0]);
    if (effect_of(operation.kind) != Operation::Effect::kMix)
      return fastloader::apply(operation, canvas);
    if (operation.kind == Kind::kMixBegin) {
      kept_ = picture_on(canvas);
      sum_.clear();
      for (const uint8_t byte : kept_) sum_.push_back(number * static_cast<float>(byte));
      return;
    }
    for (size_t i = 0; i < kept_.size(); ++i) {
      const auto byte = static_cast<float>(canvas.pixels()[i]);
      if (operation.kind == Kind::kMixAdd) {
        const float part = number * byte;
        sum_[i] = sum_[i] + part;
        canvas.pixels()[i] = kept_[i];
      } else if (operation.kind == Kind::kMixBlend) {
        sum_[i] = static_cast<float>(blended(sum_[i], byte, number));
        canvas.pixels()[i] = kept_[i];
      } else {
        const auto mixed = static_cast<float>(clipped(sum_[i]));
        canvas.pixels()[i] = blended(static_cast<float>(kept_[i]), mixed, number);
      }
    }
  }

 private:
  static uint8_t clipped(float number) {
    return static_cast<uint8_t>(number < 0 ? 0 : number > 255 ? 255 : number);
  }
  static uint8_t blended(float first, float second, float factor) {
    const float part = factor * (second - first);
    return clipped(first + part);
  }

  Bytes kept_;
  std::vector<float> sum_;
};

TEST(a_mix_is_what_its_comments_say) {
  Random random(7);
  OperationSamples samples(random);
  Canvas canvas;
  Canvas other;
  for (int round = 0; round < 3000; ++round) {
    const ImageSize size{random_edge(random), random_edge(random)};
    const Bytes picture = random_picture(size, random);
    put(size, picture, canvas);
    put(size, picture, other);
    MixByBytes by_bytes;
    for (const Operation& operation : samples.make_mix(size)) {
      validate(operation);
      EXPECT(size_after(operation, size) == size);
      apply(operation, canvas);
      by_bytes.apply(operation, other);
      if (picture_on(canvas) != picture_on(other)) throw Failure{describe(operation, size)};
    }
  }
}

TEST(a_mix_that_is_not_under_way_is_refused_and_leaves_the_picture) {
  const Operation begin{Kind::kMixBegin, {1}};
  const std::vector<Operation> others{
      {Kind::kMixAdd, {1}}, {Kind::kMixBlend, {1}}, {Kind::kMixEnd, {1}}};
  const ImageSize size{3, 4};
  Random random(8);
  const Bytes picture = random_picture(size, random);
  Canvas canvas;
  for (const Operation& operation : others) {
    const std::string name = name_of(operation.kind);
    put(size, picture, canvas);
    EXPECT_THROW(apply(operation, canvas), InvalidArgument, name + " without mix_begin");
    apply(begin, canvas);
    EXPECT_THROW(apply(begin, canvas), InvalidArgument, "mix_begin within a mix");
    put(size, picture, canvas);  // which ends the mix
    EXPECT_THROW(apply(operation, canvas), InvalidArgument, name + " without mix_begin");
    apply(begin, canvas);
    apply({Kind::kCrop, {0, 0, 3, 2}}, canvas);
    const Bytes cropped = picture_on(canvas);
    EXPECT_THROW(apply(operation, canvas), InvalidArgument, name + ": a picture of 3x2 pixels");
    EXPECT(picture_on(canvas) == cropped);
    // Of the mix's size again, it may go on.
    apply({Kind::kResize, {3, 4, 0}}, canvas);
    apply(operation, canvas);
  }
}

TEST(a_mix_keeps_its_memory_for_the_next_one_and_counts_it) {
  Random random(9);
  OperationSamples samples(random);
  const ImageSize size{41, 53};
  const Bytes picture = random_picture(size, random);
  Canvas canvas;
  put(size, picture, canvas);
  const size_t without = canvas.scratch_bytes();
  apply({Kind::kMixBegin, {1}}, canvas);
  const size_t kept = canvas.scratch_bytes();
  EXPECT(kept >= without + picture.size() * (1 + sizeof(float)));
  EXPECT(kept <= without + picture.size() * (1 + sizeof(float)) + 1024);
  std::vector<std::vector<Operation>> mixes;
  for (int i = 0; i < 50; ++i) mixes.push_back(samples.make_mix(size));
  size_t before = 0;
  for (int epoch = 0; epoch < 2; ++epoch) {
    before = allocations;
    for (const std::vector<Operation>& mix : mixes) {
      put(size, picture, canvas);
      for (const Operation& operation : mix) apply(operation, canvas);
    }
  }
  EXPECT_EQ(allocations.load(), before);
}

// ---- What is refused ----------------------------------------------------------------------------

TEST(a_kind_that_there_is_not_is_refused) {
  EXPECT_THROW(validate(Operation{}), InvalidArgument, "no operation");
  EXPECT_THROW(name_of(Kind::kCount), InvalidArgument, "no operation");
  EXPECT_THROW(validate(Operation{static_cast<Kind>(255), {}}), InvalidArgument, "255");
  EXPECT_THROW(size_after(Operation{}, {1, 1}), InvalidArgument, "no operation");
  EXPECT_THROW(operation_kind("sharpen"), InvalidArgument, "no operation sharpen");
  for (size_t number = 0; number < kOperationKinds; ++number) {
    const auto kind = static_cast<Kind>(number);
    EXPECT(operation_kind(name_of(kind)) == kind);
  }
}

TEST(wrong_counts_and_numbers_that_are_none_are_refused) {
  Random random(5);
  OperationSamples samples(random);
  for (size_t number = 0; number < kOperationKinds; ++number) {
    const auto kind = static_cast<Kind>(number);
    const std::string name = name_of(kind);
    for (int round = 0; round < 20; ++round) {
      const Operation good = samples.make(kind, {30, 30});
      validate(good);
      Operation bad = good;
      bad.numbers.resize(13, 1);
      EXPECT_THROW(validate(bad), InvalidArgument, name);
      for (size_t i = 0; i < good.numbers.size(); ++i) {
        for (const double wrong : {std::nan(""), kInfinity, -kInfinity}) {
          bad = good;
          bad.numbers[i] = wrong;
          EXPECT_THROW(validate(bad), InvalidArgument, name);
        }
      }
      if (good.numbers.empty()) continue;
      bad.numbers = {};
      EXPECT_THROW(validate(bad), InvalidArgument, name);
    }
  }
}

TEST(numbers_that_the_comments_rule_out_are_refused) {
  const std::vector<Operation> wrong = {
      {Kind::kPosterize, {-1}},
      {Kind::kPosterize, {9}},
      {Kind::kPosterize, {2.5}},
      {Kind::kSolarizeAdd, {0.5}},
      {Kind::kSolarizeAdd, {3e9}},
      {Kind::kBrightness, {1e39}},
      {Kind::kContrast, {-1e39}},
      {Kind::kSaturation, {1e300}},
      {Kind::kSharpness, {1e39}},
      {Kind::kHue, {0.51}},
      {Kind::kHue, {-0.51}},
      {Kind::kPillowBlur, {1e9, 1}},
      {Kind::kGaussianBlur, {2, 3, 1, 1}},
      {Kind::kGaussianBlur, {3, 1025, 1, 1}},
      {Kind::kGaussianBlur, {3, 3, 0, 1}},
      {Kind::kGaussianBlur, {3, 3, 1, -1}},
      {Kind::kAffine, {1, 0, 0, 0, 1, 0, 1, 0, 0, 0}},
      {Kind::kAffine, {1, 0, 0, 0, 1, 0, 2, 0, 0, 256}},
      {Kind::kPerspective, {1, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0}},
      {Kind::kPerspective, {1, 0, 0, 0, 1, 0, 0, 0, 2, -1, 0, 0}},
      {Kind::kRotate, {9, 2, 2, 0, 0, 0}},
      {Kind::kRotate, {9, 2, 1, 5, 0, 0, 0}},
      {Kind::kRotate, {9, 2, 1, 0.5, 0, 0}},
      {Kind::kPad, {0.5, 0, 0, 0, 0, 0, 0, 0}},
      {Kind::kPad, {0, 0, 0, 0, 4, 0, 0, 0}},
      {Kind::kPad, {0, 0, 0, 1e9, 0, 0, 0, 0}},
      {Kind::kCrop, {0, 0, 0, 1}},
      {Kind::kCrop, {0, 0, 1e7, 1e7}},
      {Kind::kResize, {0, 1, 2}},
      {Kind::kResize, {1, 1.5, 2}},
      {Kind::kResize, {1e7, 1e7, 2}},
      {Kind::kResize, {1, 1, 7}},
      {Kind::kResize, {1, 1, -1}},
      {Kind::kMixBegin, {-0.1}},
      {Kind::kMixBegin, {1.1}},
      {Kind::kMixAdd, {2}},
      {Kind::kMixBlend, {1e39}},
      {Kind::kMixEnd, {-1e39}},
  };
  for (const Operation& operation : wrong) {
    EXPECT_THROW(validate(operation), InvalidArgument, name_of(operation.kind));
  }
}

TEST(numbers_of_any_magnitude_are_refused_or_harmless) {
  Random random(6);
  OperationSamples samples(random);
  Canvas canvas;
  const double extreme[] = {0,    -0.0, 1e-320, -1e-30, 1e-9, 0.5,  32767.5,  65536, -32768,
                            16e6, 2e9,  -3e9,   9e18,   1e19, 3e38, -1.7e308, 255,   360};
  constexpr size_t kExtremes = sizeof(extreme) / sizeof(extreme[0]);
  constexpr size_t kMostPixels = 1 << 16;
  size_t applied = 0;
  for (int round = 0; round < 6000; ++round) {
    const ImageSize size{random_edge(random), random_edge(random)};
    Operation operation = samples.make(size);
    for (double& number : operation.numbers) {
      if (random.one_in(3)) number = extreme[random.below(kExtremes)];
    }
    if (!is_valid(operation)) continue;
    std::optional<ImageSize> made;
    refusal([&] { made = size_after(operation, size); });
    if (made && made->height * made->width > kMostPixels) continue;
    put(size, random_picture(size, random), canvas);
    if (apply_and_compare(operation, canvas)) ++applied;
  }
  EXPECT(applied > 1000);
}

TEST(a_size_that_does_not_allow_an_operation_is_refused_alike) {
  const ImageSize size{4, 5};
  const std::vector<Operation> wrong = {
      {Kind::kGaussianBlur, {11, 1, 1, 1}},
      {Kind::kGaussianBlur, {1, 9, 1, 1}},
      {Kind::kPad, {-3, 0, -2, 0, 0, 0, 0, 0}},
      {Kind::kPad, {-5, 0, 9, 0, 1, 0, 0, 0}},
      {Kind::kPad, {16777216, 0, 0, 0, 0, 0, 0, 0}},
      {Kind::kRotate, {45, 0, 1, 1e300, 1e300, 0, 0, 0}},
  };
  Canvas canvas;
  for (const Operation& operation : wrong) {
    validate(operation);
    put(size, Bytes(4 * 5 * 3, 9), canvas);
    EXPECT(!apply_and_compare(operation, canvas));
    EXPECT_THROW(size_after(operation, size), InvalidArgument, name_of(operation.kind));
  }
}

TEST(a_canvas_without_memory_for_a_picture_keeps_the_one_that_it_has) {
  Canvas canvas;
  const ImageSize size{2, 3};
  const Bytes picture = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18};
  put(size, picture, canvas);
  bool thrown = false;
  try {
    canvas.begin({size_t{1} << 42, size_t{1} << 20});  // more bytes than a pointer can tell apart
  } catch (const std::length_error&) {
    thrown = true;
  }
  EXPECT(thrown);
  EXPECT(canvas.size() == size);
  EXPECT(picture_on(canvas) == picture);
}

}  // namespace
}  // namespace fastloader

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
