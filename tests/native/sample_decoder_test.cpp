#include "pipeline/sample_decoder.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "check.h"
#include "counted_allocations.h"
#include "gated_source.h"
#include "image/dispatch.h"
#include "image/resize/split_rgb.h"
#include "image_reference.h"

namespace fastloader {
namespace {

using namespace testing;

using Output = ImageJob::Output;
using Scale = ImageTransform::Scale;
using Files = std::vector<std::vector<uint8_t>>;

ImageJob job_for(Files files, const ImageTransform& transform, Output output = Output::kNhwcBytes) {
  ImageJob job;
  job.source = std::make_shared<MemorySource>(std::move(files));
  job.transform = transform;
  job.output = output;
  if (output == Output::kNormalized) {
    const ImageSize size = transform.output().value();
    job.normalize.batch = 1;
    job.normalize.height = size.height;
    job.normalize.width = size.width;
    job.normalize.channels = 3;
    for (int c = 0; c < 3; ++c) {
      job.normalize.scale[c] = 0.017f + 0.001f * static_cast<float>(c);
      job.normalize.bias[c] = -2.1f + 0.1f * static_cast<float>(c);
    }
  }
  validate(job);
  return job;
}

ImageTransform random_transform(Random& random) {
  ImageTransform transform;
  const ImageSize size{random.between(1, 40), random.between(1, 40)};
  switch (random.below(6)) {
    case 0:
      transform.random_crop = CropRange{};
      transform.scale = Scale::kExact;
      transform.exact = size;
      break;
    case 1:
      transform.scale = Scale::kShorter;
      transform.shorter = random.between(1, 40);
      if (random.chance(30)) transform.max_size = transform.shorter + random.between(1, 9);
      transform.center_crop = size;
      break;
    case 2:
      transform.scale = Scale::kExact;
      transform.exact = size;
      break;
    case 3:
      transform.scale = Scale::kExact;
      transform.exact = size;
      transform.center_crop = ImageSize{random.between(1, 50), random.between(1, 50)};
      if (random.chance(50)) transform.random_crop = CropRange{0.3, 2.0, 0.2, 5.0};
      break;
    case 4:
      transform.scale = random.chance(50) ? Scale::kCover : Scale::kFit;
      transform.exact = {random.between(1, 50), random.between(1, 50)};
      transform.center_crop = size;
      break;
    default:
      transform.center_crop = ImageSize{random.between(1, 100), random.between(1, 100)};
  }
  if (random.chance(50)) transform.fill = {9, 99, 199};
  const auto flip = [&] { return random.chance(30) ? 0.0 : random.chance(30) ? 1.0 : 0.5; };
  transform.horizontal_flip = flip();
  transform.vertical_flip = flip();
  transform.filter = random.chance(50) ? ResizeFilter::kBilinear : ResizeFilter::kBicubic;
  transform.random_filter = random.chance(30);
  return transform;
}

std::vector<uint8_t> random_jpeg(Random& random, uint32_t largest) {
  for (;;) {
    JpegSpec spec = random_spec(random, largest);
    const uint32_t kind = random.below(10);
    if (kind == 0) spec.stored = JCS_GRAYSCALE;
    if (kind == 1) spec.stored = JCS_CMYK;
    if (kind == 2) spec.stored = JCS_YCCK;
    if (kind == 3) spec.stored = JCS_RGB;
    for (JpegSampling& sampling : spec.sampling) sampling = {1, 1};
    const uint32_t layout = random.below(3);
    if (kind > 3 && layout > 0) spec.sampling[0] = {2, static_cast<uint8_t>(layout)};
    std::vector<uint8_t> file = make_jpeg(spec);
    if (!file.empty()) return file;
  }
}

std::string describe(const ImageTransform& transform, const PlainJpeg& plain, int round) {
  const ImageSize size = transform.output().value();
  return "round " + std::to_string(round) + ": " + std::to_string(plain.width) + "x" +
         std::to_string(plain.height) + " of " + std::to_string(plain.components) + " to " +
         std::to_string(size.width) + "x" + std::to_string(size.height) + ", scale " +
         std::to_string(static_cast<int>(transform.scale)) +
         (transform.center_crop ? ", centre crop" : "");
}

/// In `out`, between two bytes that must stay untouched.
void run_into(std::vector<uint8_t>& out, size_t bytes, const std::function<void(void*)>& run) {
  out.assign(bytes + 2, 0xa5);
  run(out.data() + 1);
  EXPECT(out.front() == 0xa5 && out.back() == 0xa5);
  out.erase(out.begin());
  out.pop_back();
}

std::vector<uint8_t> expected(const ImageJob& job, const Image& picture) {
  if (job.output == Output::kNhwcBytes) return picture.bytes;
  if (job.output == Output::kNchwBytes) return planar(picture);
  std::vector<uint8_t> out(job.normalize.out_bytes());
  normalize_with_isa("scalar", job.normalize, picture.bytes.data(), out.data());
  return out;
}

TEST(pixels_are_those_of_a_whole_decode_crop_resize_pad_and_flip) {
  Random random(20240611);
  SampleDecoder decoder;  // one for all, as a thread's is
  std::vector<uint8_t> out;
  for (int round = 0; round < 1200; ++round) {
    const std::vector<uint8_t> file = random_jpeg(random, 80);
    const PlainJpeg plain(file.data(), file.size(), false, kPillowPixelLimit);
    EXPECT(plain.end() == PlainJpeg::End::kFine);
    const ImageTransform transform = random_transform(random);
    const uint64_t seed = random.next();
    const ImageSize size{plain.height, plain.width};
    SampleGeometry geometry;
    try {
      geometry = draw_geometry(transform, size, seed, 0);
    } catch (const InvalidArgument&) {
      const ImageJob job = job_for({file}, transform);
      out.resize(job.sample_bytes());
      EXPECT_THROW(decoder.decode(job, 0, seed, out.data()), InvalidArgument, "too thin");
      continue;
    }
    const Image picture = reference_picture(transform, geometry, plain.rgb.data(), plain.width);
    for (const Output output : {Output::kNhwcBytes, Output::kNchwBytes, Output::kNormalized}) {
      ImageJob job = job_for({file}, transform, output);
      job.normalize.out_type = static_cast<FloatType>(random.below(3));
      job.normalize.out_layout = random.chance(50) ? Layout::kNchw : Layout::kNhwc;
      const std::vector<uint8_t> wanted = expected(job, picture);
      EXPECT_EQ(wanted.size(), job.sample_bytes());
      run_into(out, wanted.size(), [&](void* to) { decoder.decode(job, 0, seed, to); });
      if (out != wanted) throw Failure{"decode, " + describe(transform, plain, round)};
      run_into(out, wanted.size(), [&](void* to) {
        decoder.transform({0, seed}, {&job, 0, to}, plain.rgb.data(), size);
      });
      if (out != wanted) throw Failure{"transform, " + describe(transform, plain, round)};
      const SampleGeometry told = decoder.draw(job, 0, {0, seed}).geometry;
      EXPECT(told.box == geometry.box);
      EXPECT(told.horizontal_flip == geometry.horizontal_flip);
      EXPECT(told.vertical_flip == geometry.vertical_flip);
      EXPECT(told.filter == geometry.filter);
    }
  }
}

TEST(views_of_a_sample_are_what_each_is_by_itself) {
  Random random(20261124);
  SampleDecoder decoder;
  for (int round = 0; round < 400; ++round) {
    const std::vector<uint8_t> file = random_jpeg(random, 90);
    const PlainJpeg plain(file.data(), file.size(), false, kPillowPixelLimit);
    const SampleKey key{random.next(), random.next()};
    // Crops of all sizes: a few small ones are decoded apart, many or large ones together.
    const auto source = std::make_shared<MemorySource>(Files{file});
    std::vector<ImageJob> jobs;
    const double low = random.chance(50) ? 0.01 : 0.3;
    for (uint64_t i = random.between(1, 6); i > 0; --i) {
      ImageTransform transform;
      transform.random_crop = CropRange{low, low * 2, 0.75, 4.0 / 3};
      transform.scale = Scale::kExact;
      transform.exact = ImageSize{random.between(1, 20), random.between(1, 20)};
      transform.horizontal_flip = 0.5;
      jobs.push_back(
          job_for({file}, transform, random.chance(50) ? Output::kNhwcBytes : Output::kNchwBytes));
      jobs.back().source = source;
    }
    std::vector<std::vector<uint8_t>> out;
    std::vector<PictureView> views;
    for (uint32_t i = 0; i < jobs.size(); ++i) out.emplace_back(jobs[i].sample_bytes());
    for (uint32_t i = 0; i < jobs.size(); ++i) views.push_back({&jobs[i], i, out[i].data()});
    decoder.decode(0, key, views);
    EXPECT((decoder.size() == ImageSize{plain.height, plain.width}));
    for (uint32_t i = 0; i < jobs.size(); ++i) {
      const ImageSize size{plain.height, plain.width};
      std::vector<uint8_t> alone(jobs[i].sample_bytes());
      decoder.transform(key, {&jobs[i], i, alone.data()}, plain.rgb.data(), size);
      EXPECT(out[i] == alone);
      decoder.decode(0, key, {{&jobs[i], i, alone.data()}});
      EXPECT(out[i] == alone);
      // The first picture draws what a sample of one picture draws, and the others differ.
      const SampleGeometry first = draw_geometry(jobs[i].transform, size, key.seed, key.sample);
      const SampleGeometry its = draw_geometry(jobs[i].transform, size, key.seed, key.sample, i);
      EXPECT(i > 0 || (its.box == first.box && its.horizontal_flip == first.horizontal_flip));
    }
  }
}

TEST(a_region_is_that_part_and_has_to_be_in_the_picture) {
  ImageTransform transform;
  transform.box = CropBox{3, 2, 5, 4};
  transform.scale = Scale::kExact;
  transform.exact = ImageSize{8, 10};
  const SampleGeometry geometry = draw_geometry(transform, {6, 8}, 1, 2);
  EXPECT((geometry.box == CropBox{3, 2, 5, 4}));
  EXPECT((geometry.scaled == ImageSize{8, 10}));
  EXPECT_THROW(draw_geometry(transform, {5, 8}, 1, 2), InvalidArgument,
               "a region of 5x4 pixels at (3, 2) of a picture of 8x5");
  transform.box->left = ~size_t{0};
  EXPECT_THROW(draw_geometry(transform, {6, 8}, 1, 2), InvalidArgument, "a region of 5x4");
  transform.box->width = 0;
  EXPECT_THROW(validate(transform), InvalidArgument, "a region with a width of 0");
  transform.box = CropBox{0, 0, 1, 1};
  transform.random_crop = CropRange{};
  EXPECT_THROW(validate(transform), InvalidArgument, "a random crop of a region");
}

TEST(normalised_pixels_are_the_definition) {
  ImageTransform transform;
  transform.center_crop = ImageSize{9, 7};
  const ImageJob job = job_for(small_pictures(1), transform, Output::kNormalized);
  const ImageJob bytes = job_for(small_pictures(1), transform);
  std::vector<uint8_t> pixels(bytes.sample_bytes());
  std::vector<float> floats(job.sample_bytes() / sizeof(float));
  SampleDecoder decoder;
  decoder.decode(bytes, 0, 3, pixels.data());
  decoder.decode(job, 0, 3, floats.data());
  for (size_t i = 0; i < pixels.size(); ++i) {
    const float wanted = std::fma(static_cast<float>(pixels[i]), job.normalize.scale[i % 3],
                                  job.normalize.bias[i % 3]);
    EXPECT(floats[i % 3 * 63 + i / 3] == wanted);
  }
}

TEST(split_rgb_takes_any_number_of_pixels) {
  for (size_t pixels = 0; pixels < 100; ++pixels) {
    const Fenced in(pixels * 3, true);
    const Fenced out(pixels * 3, true);
    for (size_t i = 0; i < pixels * 3; ++i) in.begin()[i] = static_cast<uint8_t>(i * 37 + i / 7);
    split_rgb(in.begin(), pixels, out.begin());
    for (size_t i = 0; i < pixels * 3; ++i) {
      EXPECT(out.begin()[i % 3 * pixels + i / 3] == in.begin()[i]);
    }
  }
}

TEST(damaged_pictures_fail_and_leave_the_decoder_usable) {
  Random random(5);
  SampleDecoder decoder;
  ImageTransform transform;
  transform.scale = Scale::kExact;
  transform.exact = {8, 8};
  const std::vector<uint8_t> good = small_pictures(4)[3];
  const ImageJob fine = job_for({good}, transform);
  std::vector<uint8_t> out(fine.sample_bytes());
  decoder.decode(fine, 0, 1, out.data());
  const std::vector<uint8_t> wanted = out;
  const auto try_file = [&](std::vector<uint8_t> file, bool must_fail) {
    const ImageJob job = job_for({std::move(file)}, transform);
    bool failed = false;
    try {
      decoder.decode(job, 0, 1, out.data());
    } catch (const DecodeError&) {
      failed = true;
    }
    EXPECT(failed || !must_fail);
    decoder.decode(fine, 0, 1, out.data());
    EXPECT(out == wanted);
  };
  try_file({}, true);
  try_file({0xff}, true);
  try_file({0xff, 0xd8, 0xff, 0xd9}, true);
  try_file(std::vector<uint8_t>(5000, 0), true);
  try_file({0x89, 'P', 'N', 'G', 13, 10, 26, 10}, true);
  for (int round = 0; round < 300; ++round) {
    std::vector<uint8_t> file = random_jpeg(random, 40);
    const PlainJpeg whole(file.data(), file.size(), false, kPillowPixelLimit);
    if (random.chance(50)) {
      file.resize(random.below(static_cast<uint32_t>(file.size())));
      const PlainJpeg plain(file.data(), file.size(), false, kPillowPixelLimit);
      try_file(file, plain.end() != PlainJpeg::End::kFine);
    } else {
      file[random.below(static_cast<uint32_t>(file.size()))] ^= 1 << random.below(8);
      try_file(file, false);
    }
  }
}

TEST(other_failures_leave_the_decoder_usable_too) {
  SampleDecoder decoder;
  ImageTransform transform;
  transform.center_crop = ImageSize{5, 5};
  const auto source = std::make_shared<GatedSource>(2);
  source->instead(0, [] { throw SourceError("gone"); });
  ImageJob job = job_for(small_pictures(1), transform);
  const std::shared_ptr<const Source> good = std::exchange(job.source, source);
  std::vector<uint8_t> out(job.sample_bytes());
  EXPECT_THROW(decoder.decode(job, 0, 1, out.data()), SourceError, "gone");
  job.source = good;
  job.jpeg.pixel_limit = 0;
  EXPECT_THROW(decoder.decode(job, 0, 1, out.data()), DecodeError, "bomb");
  job.jpeg.pixel_limit = kPillowPixelLimit;
  decoder.decode(job, 0, 1, out.data());
}

TEST(approximate_pictures_are_reduced_by_the_decoder_where_that_suffices) {
  Random random(20261120);
  SampleDecoder decoder;
  std::vector<uint8_t> out;
  int reduced[9] = {};
  for (int round = 0; round < 800; ++round) {
    const std::vector<uint8_t> file = random_jpeg(random, random.chance(50) ? 80 : 250);
    ImageTransform transform = random_transform(random);
    if (random.chance(70)) {
      transform.scale = Scale::kExact;  // small enough for every denominator to have its turn
      transform.exact = ImageSize{random.between(1, 16), random.between(1, 16)};
      if (random.chance(50)) transform.center_crop.reset();
    }
    const uint64_t seed = random.next();
    ImageJob job = job_for({file}, transform);
    job.approximate = true;
    const PlainJpeg whole(file.data(), file.size(), false, kPillowPixelLimit);
    SampleGeometry geometry;
    try {
      geometry = draw_geometry(transform, ImageSize{whole.height, whole.width}, seed, 0);
    } catch (const InvalidArgument&) {
      continue;
    }
    size_t by = 1;
    while (by < 8 && geometry.scaled.width * 2 * by <= geometry.box.width &&
           geometry.scaled.height * 2 * by <= geometry.box.height) {
      by *= 2;
    }
    ++reduced[by];
    const PlainJpeg plain(file.data(), file.size(), false, kPillowPixelLimit, static_cast<int>(by));
    const Image wanted = reference_picture(transform, geometry, plain.rgb.data(), plain.width, by);
    run_into(out, job.sample_bytes(), [&](void* to) { decoder.decode(job, 0, seed, to); });
    if (out != wanted.bytes) {
      throw Failure{"1/" + std::to_string(by) + ", " + describe(transform, whole, round)};
    }
    const SampleGeometry told = decoder.draw(job, 0, {0, seed}).geometry;
    EXPECT(told.box == geometry.box);
    EXPECT_EQ(told.horizontal_flip, geometry.horizontal_flip);
    EXPECT_EQ(told.vertical_flip, geometry.vertical_flip);
  }
  for (const int by : {1, 2, 4, 8}) EXPECT(reduced[by] >= 20);
}

TEST(of_a_thin_picture_that_is_blown_up_only_the_window_is_made) {
  JpegSpec spec;
  spec.width = 1;
  spec.height = 60000;
  for (JpegSampling& sampling : spec.sampling) sampling = {1, 1};
  ImageTransform transform;
  transform.scale = Scale::kShorter;
  transform.shorter = 256;  // 256 x 15 360 000: 11.8 GB
  transform.center_crop = ImageSize{224, 224};
  const std::vector<uint8_t> file = make_jpeg(spec);
  const PlainJpeg plain(file.data(), file.size(), false, kPillowPixelLimit);
  const ImageJob job = job_for({file}, transform);
  std::vector<uint8_t> out(job.sample_bytes());
  SampleDecoder().decode(job, 0, 1, out.data());
  for (size_t y = 0; y < 224; ++y) {
    const auto taps = reference_taps(60000, 0, 60000, 15360000, ResizeFilter::kBilinear,
                                     (15360000 - 224) / 2 + y);
    for (size_t c = 0; c < 3; ++c) {
      int64_t sum = 0;
      for (const ReferenceTap& tap : taps) sum += tap.weight * plain.rgb[tap.sample * 3 + c];
      for (size_t x = 0; x < 224; ++x) {
        EXPECT_EQ(int{out[(y * 224 + x) * 3 + c]}, int{reference_round(sum)});
      }
    }
  }
}

TEST(nothing_is_allocated_once_all_pictures_were_seen) {
  // But by libjpeg, which is made anew for each picture so that none leaves tables to the next, and
  // calls malloc, not new.
  Random random(77);
  Files files;
  for (int i = 0; i < 40; ++i) files.push_back(random_jpeg(random, 80));
  std::vector<ImageJob> jobs;
  for (const Output output : {Output::kNhwcBytes, Output::kNchwBytes, Output::kNormalized}) {
    ImageTransform train;
    train.random_crop = CropRange{};
    train.scale = Scale::kExact;
    train.exact = {32, 28};
    train.horizontal_flip = 0.5;
    jobs.push_back(job_for(files, train, output));
    ImageTransform test;
    test.scale = Scale::kShorter;
    test.shorter = 20;
    test.center_crop = ImageSize{24, 18};
    jobs.push_back(job_for(files, test, output));
  }
  std::vector<uint8_t> out(32 * 28 * 3 * 4);
  SampleDecoder decoder;
  const auto epoch = [&](uint64_t seed) {
    for (const ImageJob& job : jobs) {
      for (uint64_t i = 0; i < files.size(); ++i) {
        try {
          decoder.decode(job, i, seed, out.data());
        } catch (const InvalidArgument&) {
          EXPECT(false);
        }
      }
    }
  };
  epoch(1);
  const size_t before = allocations;
  epoch(1);
  EXPECT_EQ(allocations.load(), before);
}

TEST(jobs_that_contradict_themselves_are_refused) {
  ImageTransform transform;
  transform.center_crop = ImageSize{4, 6};
  const ImageJob good = job_for(small_pictures(1), transform, Output::kNormalized);
  EXPECT_EQ(good.sample_bytes(), 4u * 6u * 3u * 4u);
  const auto refused = [&](const std::function<void(ImageJob&)>& change, const char* part) {
    ImageJob job = good;
    change(job);
    EXPECT_THROW(validate(job), InvalidArgument, part);
  };
  refused([](ImageJob& job) { job.source.reset(); }, "source");
  refused([](ImageJob& job) { job.transform.center_crop.reset(); }, "sizes");
  refused([](ImageJob& job) { job.normalize.batch = 2; }, "normalisation");
  refused([](ImageJob& job) { job.normalize.channels = 1; }, "normalisation");
  refused([](ImageJob& job) { job.normalize.in_layout = Layout::kNchw; }, "normalisation");
  refused([](ImageJob& job) { job.normalize.width = 7; }, "normalisation");
  refused([](ImageJob& job) { job.normalize.height = 5; }, "normalisation");
  refused([](ImageJob& job) { job.normalize.scale[1] = INFINITY; }, "finite");
}

}  // namespace
}  // namespace fastloader

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
