// PixelSource: pictures of any strides come as RGB without gaps, and are not decoded; grey ones
// come out in one channel, in every form.

#include "source/pixel_source.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "check.h"
#include "child_process.h"
#include "mapped_file.h"
#include "pipeline/sample_decoder.h"

namespace fastloader {
namespace {

using Array = PixelSource::Array;
using Bytes = std::vector<uint8_t>;
using Output = ImageJob::Output;

constexpr size_t kHeight = 5;
constexpr size_t kWidth = 7;
constexpr uint64_t kCount = 4;

/// What stands at a place of a picture.
uint8_t value(uint64_t index, size_t y, size_t x, size_t channel) {
  return static_cast<uint8_t>(index * 61 + y * 29 + x * 13 + channel * 97);
}

Bytes rgb(uint64_t index, size_t channels) {
  Bytes made;
  for (size_t y = 0; y < kHeight; ++y) {
    for (size_t x = 0; x < kWidth; ++x) {
      for (size_t c = 0; c < 3; ++c) made.push_back(value(index, y, x, channels == 3 ? c : 0));
    }
  }
  return made;
}

/// Lays pictures out with the strides of `array`, and points it at them.
Bytes lay_out(Array& array, size_t bytes, size_t first) {
  Bytes memory(bytes, 255);
  array.first = memory.data() + first;
  array.count = kCount;
  array.size = {kHeight, kWidth};
  for (uint64_t i = 0; i < kCount; ++i) {
    for (size_t y = 0; y < kHeight; ++y) {
      for (size_t x = 0; x < kWidth; ++x) {
        for (size_t c = 0; c < array.channels; ++c) {
          const auto at = static_cast<ptrdiff_t>(first) +
                          static_cast<ptrdiff_t>(i) * array.to_picture +
                          static_cast<ptrdiff_t>(y) * array.to_row +
                          static_cast<ptrdiff_t>(x) * array.to_column +
                          static_cast<ptrdiff_t>(c) * array.to_channel;
          memory.at(static_cast<size_t>(at)) = value(i, y, x, c);
        }
      }
    }
  }
  return memory;
}

Array strides(size_t channels, ptrdiff_t picture, ptrdiff_t row, ptrdiff_t column,
              ptrdiff_t channel) {
  Array array;
  array.channels = channels;
  array.to_picture = picture;
  array.to_row = row;
  array.to_column = column;
  array.to_channel = channel;
  return array;
}

TEST(pictures_of_any_strides_are_read) {
  constexpr ptrdiff_t kPixels = kHeight * kWidth;
  struct Case {
    Array array;
    size_t first;
    bool viewed;
  };
  const std::vector<Case> cases = {
      {strides(3, 3 * kPixels, 3 * kWidth, 3, 1), 0, true},
      {strides(3, 3 * kPixels + 11, 3 * kWidth, 3, 1), 5, true},
      {strides(3, -3 * kPixels, 3 * kWidth, 3, 1), 3 * 3 * kPixels, true},
      {strides(3, 3 * kPixels, kWidth, 1, kPixels), 0, false},   // channels first
      {strides(3, 3 * kPixels, 1, kHeight, kPixels), 0, false},  // and rows last
      {strides(3, 4 * kPixels, 4 * kWidth, 4, 1), 0, false},     // RGB out of RGBA
      {strides(3, 3 * kPixels, 3 * kWidth, 3, -1), 2, false},    // BGR
      {strides(3, 3 * kPixels, -3 * kWidth, 3, 1), 3 * (kPixels - kWidth), false},
      {strides(1, kPixels, kWidth, 1, 0), 0, false},
      {strides(1, 1, kWidth * kCount, kCount, 0), 0, false},
  };
  for (Case each : cases) {
    const Bytes memory = lay_out(each.array, 4 * kPixels * (kCount + 1), each.first);
    const PixelSource source({each.array});
    EXPECT_EQ(source.size(), kCount);
    Bytes read(3, 9);
    for (uint64_t i = 0; i < kCount; ++i) {
      const Bytes wanted = rgb(i, each.array.channels);
      source.read(i, read);
      EXPECT(read == wanted);
      const std::optional<SampleBytes> seen = source.view(i);
      EXPECT_EQ(seen.has_value(), each.viewed);
      if (seen) EXPECT(Bytes(seen->data, seen->data + seen->size) == wanted);
    }
    EXPECT_THROW(source.read(kCount, read), InvalidArgument, "picture 4 of 4");
    EXPECT_THROW(source.view(kCount), InvalidArgument, "picture 4 of 4");
    EXPECT_THROW(source.pixels(kCount), InvalidArgument, "picture 4 of 4");
  }
}

/// The same pictures in a mapped file.
TEST(pictures_of_a_mapped_file_are_copied_or_refused) {
  constexpr ptrdiff_t kPixels = kHeight * kWidth;
  // The last two lie so far apart that rows, and bytes, are copied by themselves.
  const std::vector<std::pair<Array, size_t>> cases = {
      {strides(3, 3 * kPixels, 3 * kWidth, 3, 1), 0},
      {strides(3, 3 * kPixels, kWidth, 1, kPixels), 0},
      {strides(3, 3 * kPixels, -3 * kWidth, 3, 1), 3 * (kPixels - kWidth)},
      {strides(3, 3 * kPixels, 3 * kWidth, 3, -1), 2},
      {strides(1, kPixels, kWidth, 1, 0), 0},
      {strides(3, 3 * kWidth, 50 * kWidth, 3, 1), 0},
      {strides(3, 1, 3 * kWidth * 20, 3 * 20, 20), 0},
  };
  for (auto [array, first] : cases) {
    const auto body = [array = array, first = first]() mutable {
      const size_t span = static_cast<size_t>(kPixels) * 60 + first;
      Bytes memory = lay_out(array, span, first);
      memory.insert(memory.begin(), 4096 - first, 0);  // the first picture crosses a page
      const testing::MappedFile file(memory);
      array.first = file.data() + 4096;
      array.mapped = true;
      const PixelSource source({array});
      Bytes read(3, 9);
      for (uint64_t i = 0; i < kCount; ++i) {
        EXPECT(!source.view(i));
        source.read(i, read);
        EXPECT(read == rgb(i, array.channels));
      }
      file.cut(4000);
      EXPECT_THROW(source.read(0, read), SourceError, "cannot read picture 0: the file");
    };
    EXPECT_EQ(testing::in_forked_child(body).exit_code, 0);
  }
}

TEST(arrays_follow_one_another) {
  const uint8_t pixels[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  Array grey = strides(1, 2, 2, 1, 0);
  grey.first = pixels;
  grey.count = 2;
  grey.size = {1, 2};
  Array none = grey;
  none.count = 0;
  Array coloured = strides(3, 3, 3, 3, 1);
  coloured.first = pixels + 6;
  coloured.count = 1;
  coloured.size = {1, 1};
  const PixelSource source({none, grey, none, coloured, none});
  EXPECT_EQ(source.size(), 3u);
  const PixelSize grey_size = *source.pixels(1);
  const PixelSize coloured_size = *source.pixels(2);
  EXPECT_EQ(grey_size.width, 2u);
  EXPECT_EQ(coloured_size.width, 1u);
  Bytes read;
  source.read(1, read);
  EXPECT(read == (Bytes{3, 3, 3, 4, 4, 4}));
  source.read(2, read);
  EXPECT(read == (Bytes{7, 8, 9}));
  EXPECT_EQ(PixelSource({}).size(), 0u);
}

TEST(what_is_no_picture_is_refused) {
  Array array = strides(2, 1, 1, 1, 1);
  array.size = {1, 1};
  EXPECT_THROW(PixelSource({array}), InvalidArgument, "2 channels");
  array.channels = 3;
  array.size = {1, 0};
  EXPECT_THROW(PixelSource({array}), InvalidArgument, "0x1 pixels");
}

ImageJob job_of(const Array& array, Output output) {
  ImageJob job;
  job.source = std::make_shared<PixelSource>(std::vector<Array>{array});
  job.transform.horizontal_flip = 0.5;
  job.output = output;
  job.output_size = {kHeight, kWidth};
  job.channels = array.channels;
  job.normalize.batch = 1;
  job.normalize.height = kHeight;
  job.normalize.width = kWidth;
  job.normalize.channels = static_cast<int>(array.channels);
  for (int c = 0; c < 3; ++c) job.normalize.scale[c] = 0.25f;
  validate(job);
  return job;
}

TEST(pixels_become_what_a_decoded_picture_becomes) {
  Array array = strides(3, 3 * kHeight * kWidth, kWidth, 1, kHeight * kWidth);
  const Bytes memory = lay_out(array, 3 * kHeight * kWidth * kCount, 0);
  SampleDecoder decoder;
  for (const Output output : {Output::kNhwcBytes, Output::kNchwBytes, Output::kNormalized}) {
    const ImageJob job = job_of(array, output);
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const uint64_t index = seed % kCount;
      const Bytes pixels = rgb(index, 3);
      Bytes wanted(job.sample_bytes());
      Bytes out(job.sample_bytes(), 7);
      decoder.transform({index, seed}, {&job, 0, wanted.data()}, pixels.data(), {kHeight, kWidth});
      decoder.decode(job, index, seed, out.data());
      EXPECT(out == wanted);
      EXPECT_EQ(decoder.large(), 0u);
      EXPECT_EQ(decoder.times().bytes, pixels.size());
      EXPECT_EQ(decoder.draw(job, index, {index, seed}).geometry.scaled.width, kWidth);
    }
  }
}

TEST(grey_pictures_come_out_in_one_channel) {
  Array array = strides(1, kHeight * kWidth, kWidth, 1, 0);
  const Bytes memory = lay_out(array, kHeight * kWidth * kCount, 0);
  SampleDecoder decoder;
  ImageJob plain = job_of(array, Output::kNhwcBytes);
  plain.channels = 3;
  auto recipe = std::make_shared<const Recipe>([] {
    Step invert;
    invert.kind = Step::Kind::kOperation;
    invert.operation = Operation::Kind::kInvert;
    return std::vector<Step>{invert};
  }());
  for (const auto& steps : {std::shared_ptr<const Recipe>(), recipe}) {
    plain.recipe = steps;
    for (uint64_t i = 0; i < kCount; ++i) {
      Bytes coloured(plain.sample_bytes());
      decoder.decode(plain, i, i, coloured.data());
      Bytes wanted;
      for (size_t p = 0; p < coloured.size(); p += 3) wanted.push_back(coloured[p]);
      for (const Output output : {Output::kNhwcBytes, Output::kNchwBytes}) {
        ImageJob job = job_of(array, output);
        job.recipe = steps;
        // A guard behind the picture: three channels would not fit.
        Bytes out(job.sample_bytes() + 4, 99);
        EXPECT_EQ(job.sample_bytes(), wanted.size());
        decoder.decode(job, i, i, out.data());
        EXPECT(Bytes(out.begin(), out.end() - 4) == wanted);
        EXPECT(Bytes(out.end() - 4, out.end()) == Bytes(4, 99));
      }
      ImageJob job = job_of(array, Output::kNormalized);
      job.recipe = steps;
      std::vector<float> made(wanted.size());
      EXPECT_EQ(job.sample_bytes(), wanted.size() * sizeof(float));
      decoder.decode(job, i, i, made.data());
      for (size_t p = 0; p < wanted.size(); ++p) EXPECT_EQ(made[p], 0.25f * wanted[p]);
    }
  }
}

TEST(a_picture_of_another_size_is_refused) {
  Array array = strides(1, kHeight * kWidth, kWidth, 1, 0);
  const Bytes memory = lay_out(array, kHeight * kWidth * kCount, 0);
  ImageJob job = job_of(array, Output::kNhwcBytes);
  job.output_size = {kHeight, kWidth - 1};
  SampleDecoder decoder;
  Bytes out(job.sample_bytes());
  EXPECT_THROW(decoder.decode(job, 0, 0, out.data()), InvalidArgument,
               "makes a picture of 7x5 pixels of this one, where all are to be 6x5");
}

TEST(a_job_of_two_channels_is_refused) {
  Array array = strides(1, kHeight * kWidth, kWidth, 1, 0);
  const Bytes memory = lay_out(array, kHeight * kWidth * kCount, 0);
  ImageJob job = job_of(array, Output::kNormalized);
  job.channels = 2;
  EXPECT_THROW(validate(job), InvalidArgument, "2 channels");
  job.channels = 3;  // and a normalisation of one
  EXPECT_THROW(validate(job), InvalidArgument, "transform's size and channels");
}

}  // namespace
}  // namespace fastloader

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
