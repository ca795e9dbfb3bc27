#include "image/resize/resizer.h"

#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "check.h"
#include "counted_allocations.h"
#include "image/dispatch.h"
#include "resize_reference.h"

namespace fastloader {
namespace {

using namespace testing;

/// One per instruction set, kept over all tests as a thread keeps it over all pictures.
struct Named {
  std::string isa;
  Resizer resizer;
};

std::vector<Named>& resizers() {
  static std::vector<Named>* all = [] {
    auto* made = new std::vector<Named>;
    for (const std::string& name : available_isa_names()) made->push_back({name, Resizer(name)});
    return made;
  }();
  return *all;
}

using Sizes = std::vector<size_t>;

constexpr uint8_t kPoison = 0x5a;

/// Input in the middle of a larger picture whose end may not be touched; output with room between
/// the rows that must stay as it is.
void check(const ResizeSpec& spec, Random& random) {
  const Image in = random_image(spec.in_width, spec.in_height, spec.channels, random);
  const Image expected = reference_resize(spec, in);
  const size_t in_row = spec.in_row_bytes();
  const size_t in_stride = in_row + random.below(70) * random.below(2);
  const size_t in_bytes = in_stride * (spec.in_height - 1) + in_row;
  const size_t row = expected.width * spec.channels;
  const size_t rows = expected.height;
  const size_t stride = row + random.below(70) * random.below(2);
  const size_t bytes = stride * (rows - 1) + row;
  const bool at_end = !random.one_in(3);
  const Fenced from(in_bytes, at_end);
  const Fenced to(bytes, at_end);
  for (size_t y = 0; y < spec.in_height; ++y) {
    std::memcpy(from.begin() + y * in_stride, in.bytes.data() + y * in_row, in_row);
  }
  for (Named& named : resizers()) {
    std::memset(to.begin(), kPoison, bytes);
    named.resizer.resize(spec, from.begin(), in_stride, to.begin(), stride);
    if (!named.resizer.finished()) throw Failure{named.isa + " unfinished: " + describe(spec)};
    for (size_t y = 0; y < rows; ++y) {
      const uint8_t* got = to.begin() + y * stride;
      if (std::memcmp(got, expected.bytes.data() + y * row, row) != 0) {
        throw Failure{named.isa + " differs in row " + std::to_string(y) + ": " + describe(spec)};
      }
      for (size_t i = row; i < stride && y + 1 < rows; ++i) {
        if (got[i] != kPoison) throw Failure{named.isa + " writes outside: " + describe(spec)};
      }
    }
  }
}

constexpr ResizeFilter kFilters[] = {ResizeFilter::kBox, ResizeFilter::kBilinear,
                                     ResizeFilter::kBicubic, ResizeFilter::kHamming,
                                     ResizeFilter::kLanczos};

constexpr ResizeOrder kOrders[] = {ResizeOrder::kPillow13, ResizeOrder::kPillow12_2,
                                   ResizeOrder::kHorizontalFirst};

ResizeFilter any_filter(Random& random) { return kFilters[random.below(5)]; }

ResizeSpec any_spec(Random& random, size_t most) {
  const auto edge = [&] {
    return random.one_in(6) ? random.between(1, 5) : random.between(1, most);
  };
  const size_t channels = random.one_in(3) ? 1 : 3;
  ResizeSpec spec = make_spec(edge(), edge(), edge(), edge(), channels, any_filter(random));
  if (random.one_in(8)) spec.out_width = spec.in_width;
  if (random.one_in(8)) spec.out_height = spec.in_height;
  if (random.one_in(4)) spec.order = kOrders[random.below(3)];
  spec.horizontal_flip = random.one_in(2);
  spec.vertical_flip = random.one_in(2);
  return spec;
}

// ---- Exactness ----------------------------------------------------------------------------------

TEST(every_isa_is_exact_for_small_geometries) {
  Random random(1);
  for (int i = 0; i < 1500; ++i) check(any_spec(random, 40), random);
}

TEST(every_isa_is_exact_for_medium_geometries) {
  Random random(2);
  for (int i = 0; i < 150; ++i) check(any_spec(random, 300), random);
}

TEST(every_isa_is_exact_at_the_edges) {
  Random random(3);
  for (size_t in_width : Sizes{1, 2, 22, 65}) {
    for (size_t in_height : Sizes{1, 3, 40}) {
      for (size_t out_width : Sizes{1, 2, 21, 64}) {
        for (size_t out_height : Sizes{1, 4, 33}) {
          for (size_t channels : Sizes{1, 3}) {
            for (ResizeFilter filter : kFilters) {
              ResizeSpec spec =
                  make_spec(in_width, in_height, out_width, out_height, channels, filter);
              check(spec, random);
              spec.horizontal_flip = true;
              check(spec, random);
            }
          }
        }
      }
    }
  }
}

TEST(every_isa_is_exact_for_extreme_ratios) {
  Random random(4);
  const size_t sizes[][4] = {{5000, 3, 1, 1},   {3, 5000, 1, 1},   {5000, 2, 7, 2},
                             {1, 1, 700, 3},    {1, 1, 3, 700},    {4000, 1, 64, 5},
                             {1, 4000, 5, 64},  {700, 500, 3, 2},  {2, 2, 501, 1},
                             {997, 13, 31, 57}, {13, 997, 57, 31}, {1500, 20, 224, 9}};
  for (const auto& size : sizes) {
    for (ResizeFilter filter : kFilters) {
      for (size_t channels : Sizes{1, 3}) {
        ResizeSpec spec = make_spec(size[0], size[1], size[2], size[3], channels, filter);
        check(spec, random);
        spec.horizontal_flip = spec.vertical_flip = true;
        for (ResizeOrder order : kOrders) {
          spec.order = order;
          check(spec, random);
        }
      }
    }
  }
}

TEST(every_isa_is_exact_for_many_taps) {
  Random random(12);
  for (size_t in_width = 30; in_width < 400; in_width += random.between(1, 3)) {
    ResizeSpec spec = make_spec(in_width, 2, random.between(1, 12), 2, 3, any_filter(random));
    spec.horizontal_flip = random.one_in(2);
    check(spec, random);
  }
}

TEST(every_isa_is_exact_for_boxes) {
  Random random(5);
  for (int i = 0; i < 500; ++i) {
    ResizeSpec spec = any_spec(random, 50);
    const bool whole_numbers = random.one_in(3);
    const auto range = [&](size_t edge) {
      if (whole_numbers) {
        const size_t begin = random.below(edge);
        return std::pair(static_cast<float>(begin),
                         static_cast<float>(random.between(begin + 1, edge)));
      }
      const float begin = static_cast<float>(edge) * static_cast<float>(random.below(900)) / 1000;
      const float length =
          (static_cast<float>(edge) - begin) * static_cast<float>(random.between(1, 999)) / 1000;
      return std::pair(begin, begin + length);
    };
    const auto [left, right] = range(spec.in_width);
    const auto [top, bottom] = range(spec.in_height);
    if (left >= right || top >= bottom) continue;
    spec.box = ResizeBox{left, top, right, bottom};
    if (whole_numbers && random.one_in(2)) spec.out_width = static_cast<size_t>(right - left);
    if (whole_numbers && random.one_in(2)) spec.out_height = static_cast<size_t>(bottom - top);
    check(spec, random);
  }
}

/// A part of the output is the same pixels as in all of it, and reads nothing it does not need: the
/// input is cut to what needed() says, between pages that may not be touched.
void check_window(const ResizeSpec& whole, Random& random) {
  ResizeSpec spec = whole;
  const auto range = [&](size_t edge) {
    const size_t begin = random.one_in(3) ? 0 : random.below(edge);
    return std::pair(begin, random.one_in(3) ? edge - begin : random.between(1, edge - begin));
  };
  const auto [left, width] = range(spec.out_width);
  const auto [top, height] = range(spec.out_height);
  spec.window = CropBox{left, top, width, height};
  check(spec, random);
  const Image in = random_image(spec.in_width, spec.in_height, spec.channels, random);
  const Image expected = reference_resize(spec, in);
  for (Named& named : resizers()) {
    std::vector<uint8_t> out(expected.bytes.size(), kPoison);
    named.resizer.begin(spec, out.data(), width * spec.channels);
    const CropBox needed = named.resizer.needed();
    EXPECT(needed.left + needed.width <= spec.in_width);
    EXPECT(needed.top + needed.height <= spec.in_height);
    const size_t bytes = needed.width * spec.channels;
    const Fenced row(bytes, random.one_in(2));
    for (size_t y = 0; y < needed.height; ++y) {
      EXPECT(!named.resizer.finished());
      std::memcpy(row.begin(),
                  &in.bytes[((needed.top + y) * spec.in_width + needed.left) * spec.channels],
                  bytes);
      named.resizer.push_row(row.begin());
    }
    EXPECT(named.resizer.finished());
    if (out != expected.bytes) throw Failure{named.isa + " differs in a part: " + describe(spec)};
  }
}

TEST(every_isa_is_exact_for_windows) {
  Random random(13);
  for (int i = 0; i < 1500; ++i) check_window(any_spec(random, 40), random);
  for (int i = 0; i < 150; ++i) check_window(any_spec(random, 300), random);
  const size_t sizes[][4] = {{5000, 3, 7, 2},   {3, 5000, 2, 7},   {1, 1, 700, 3},
                             {1, 1, 3, 700},    {4000, 1, 64, 5},  {1, 4000, 5, 64},
                             {997, 13, 31, 57}, {13, 997, 57, 31}, {1500, 20, 224, 9}};
  for (const auto& size : sizes) {
    for (int i = 0; i < 12; ++i) {
      ResizeSpec spec = make_spec(size[0], size[1], size[2], size[3], 3, any_filter(random));
      spec.horizontal_flip = random.one_in(2);
      spec.order = kOrders[random.below(3)];
      check_window(spec, random);
    }
  }
}

/// The window of a box, as the approximate decode asks for it.
TEST(every_isa_is_exact_for_windows_of_boxes) {
  Random random(14);
  for (int i = 0; i < 300; ++i) {
    ResizeSpec spec = any_spec(random, 60);
    const auto edge = [&](size_t length) {
      return static_cast<float>(random.below(8)) / 8 * (length > 1 ? 1.0f : 0.5f);
    };
    const auto in_width = static_cast<float>(spec.in_width);
    const auto in_height = static_cast<float>(spec.in_height);
    spec.box = ResizeBox{edge(spec.in_width), edge(spec.in_height),
                         in_width - edge(spec.in_width) / 2, in_height - edge(spec.in_height) / 2};
    check_window(spec, random);
  }
}

TEST(a_window_needs_only_what_its_filter_reaches) {
  ResizeSpec spec = make_spec(500, 400, 250, 200);  // halves: two pixels on either side of a centre
  spec.window = CropBox{100, 50, 30, 20};
  std::vector<uint8_t> out(30 * 20 * 3);
  Resizer resizer;
  resizer.begin(spec, out.data(), 90);
  EXPECT(resizer.needed() == (CropBox{199, 99, 62, 42}));
  spec.out_width = 500;  // copied
  resizer.begin(spec, out.data(), 90);
  EXPECT(resizer.needed() == (CropBox{100, 99, 30, 42}));
  spec.window.reset();
  resizer.begin(spec, out.data(), 1500);
  EXPECT(resizer.needed() == (CropBox{0, 0, 500, 400}));
}

/// FNV-1a of what Pillow 13.0, 12.3 and 11.3 gave.
TEST(pictures_equal_those_of_pillow) {
  struct Known {
    ResizeSpec spec;
    uint64_t hash;
  };
  const auto with = [](ResizeSpec spec, ResizeOrder order) {
    spec.order = order;
    return spec;
  };
  constexpr ResizeFilter kCubic = ResizeFilter::kBicubic;
  const Known known[] = {
      {with(make_spec(340, 300, 224, 224), ResizeOrder::kPillow13), 0xfbb7de41dff02dbd},
      {with(make_spec(200, 280, 224, 224), ResizeOrder::kPillow13), 0x411a96713ec6555b},
      {with(make_spec(120, 500, 224, 224, 3, kCubic), ResizeOrder::kPillow13), 0xb0c8039c711d7431},
      {with(make_spec(31, 29, 64, 57, 1, kCubic), ResizeOrder::kPillow13), 0xe5f3102212582f7f},
      {with(make_spec(500, 375, 64, 48, 3, kCubic), ResizeOrder::kPillow13), 0x1f756e24b4283b34},
      {with(make_spec(7, 90, 9, 11, 1), ResizeOrder::kPillow13), 0x60d264517eb56e8d},
      {with(make_spec(3, 350, 9, 40), ResizeOrder::kPillow13), 0xfcbbd1c51bf5ffe5},
      {with(make_spec(200, 280, 224, 224), ResizeOrder::kPillow12_2), 0x121db8320f0c416f},
      {with(make_spec(120, 500, 224, 224, 3, kCubic), ResizeOrder::kPillow12_2),
       0xa9381acf4532c844},
      {with(make_spec(7, 90, 9, 11, 1), ResizeOrder::kPillow12_2), 0x7033f212c205fb46},
      {with(make_spec(3, 350, 9, 40), ResizeOrder::kPillow12_2), 0xfcbbd1c51bf5ffe5},
      {with(make_spec(200, 280, 224, 224), ResizeOrder::kHorizontalFirst), 0x121db8320f0c416f},
      {with(make_spec(120, 500, 224, 224, 3, kCubic), ResizeOrder::kHorizontalFirst),
       0xa9381acf4532c844},
      {with(make_spec(7, 90, 9, 11, 1), ResizeOrder::kHorizontalFirst), 0x7033f212c205fb46},
      {with(make_spec(3, 350, 9, 40), ResizeOrder::kHorizontalFirst), 0x89fcf6aa39894479},
  };
  for (const Known& one : known) {
    Random random(7);
    Image in(one.spec.in_width, one.spec.in_height, one.spec.channels);
    for (uint8_t& byte : in.bytes) byte = random.byte();
    for (Named& named : resizers()) {
      Image out(one.spec.out_width, one.spec.out_height, one.spec.channels);
      named.resizer.resize(one.spec, in.bytes.data(), one.spec.in_row_bytes(), out.bytes.data(),
                           one.spec.out_row_bytes());
      uint64_t hash = 14695981039346656037u;
      for (uint8_t byte : out.bytes) hash = (hash ^ byte) * 1099511628211u;
      if (hash != one.hash) throw Failure{named.isa + ": " + describe(one.spec)};
    }
  }
}

// ---- Streaming ----------------------------------------------------------------------------------

TEST(rows_are_written_as_soon_as_they_can_be) {
  Random random(6);
  for (int i = 0; i < 60; ++i) {
    const ResizeSpec spec = any_spec(random, 60);
    const Image in = random_image(spec.in_width, spec.in_height, spec.channels, random);
    const Image expected = reference_resize(spec, in);
    const size_t row = spec.out_row_bytes();
    for (Named& named : resizers()) {
      std::vector<uint8_t> out(row * spec.out_height, kPoison);
      std::vector<uint8_t> passing(spec.in_row_bytes());
      named.resizer.begin(spec, out.data(), row);
      EXPECT(named.resizer.needed() == (CropBox{0, 0, spec.in_width, spec.in_height}));
      for (size_t y = 0; y < spec.in_height; ++y) {
        EXPECT(!named.resizer.finished());
        std::memcpy(passing.data(), in.bytes.data() + y * passing.size(), passing.size());
        named.resizer.push_row(passing.data());
        std::memset(passing.data(), 0, passing.size());  // the decoder's buffer is used again
        for (size_t o = 0; o < spec.out_height; ++o) {
          const auto taps = reference_taps(spec.in_height, 0, static_cast<float>(spec.in_height),
                                           spec.out_height, spec.filter, o);
          const bool due = spec.out_height == spec.in_height ? o <= y : taps.back().sample <= y;
          const size_t where = (spec.vertical_flip ? spec.out_height - 1 - o : o) * row;
          if (due) EXPECT(std::memcmp(&out[where], &expected.bytes[where], row) == 0);
          for (size_t k = 0; k < row && !due; ++k) EXPECT_EQ(out[where + k], kPoison);
        }
      }
      EXPECT(named.resizer.finished());
      named.resizer.push_row(passing.data());  // one too many changes nothing
      EXPECT(out == expected.bytes);
    }
  }
}

TEST(rows_outside_a_box_are_not_needed) {
  Random random(8);
  ResizeSpec spec = make_spec(30, 200, 30, 20);
  spec.box = ResizeBox{0, 100, 30, 140};
  const Image in = random_image(30, 200, 3, random);
  const Image expected = reference_resize(spec, in);
  for (Named& named : resizers()) {
    Image out(30, 20, 3);
    named.resizer.begin(spec, out.bytes.data(), 90);
    const CropBox needed = named.resizer.needed();
    EXPECT(needed.top > 90 && needed.top < 100);
    EXPECT(needed.top + needed.height > 140 && needed.top + needed.height < 150);
    for (size_t y = 0; y < needed.height; ++y) {
      named.resizer.push_row(in.bytes.data() + (needed.top + y) * 90);
    }
    const std::vector<uint8_t> garbage(90, 77);
    named.resizer.push_row(garbage.data());
    EXPECT(out.bytes == expected.bytes);
  }
}

TEST(a_picture_that_was_given_up_leaves_no_trace) {
  Random random(9);
  for (Named& named : resizers()) {
    std::vector<uint8_t> lost(1000 * 3);
    const Image in = random_image(50, 40, 3, random);
    named.resizer.begin(make_spec(50, 40, 20, 20), lost.data(), 60);
    for (size_t y = 0; y < 17; ++y) named.resizer.push_row(in.bytes.data() + y * 150);
    check(make_spec(50, 40, 20, 20), random);
    named.resizer.begin(make_spec(50, 40, 20, 20), lost.data(), 60);
    EXPECT_THROW(named.resizer.begin(make_spec(50, 0, 20, 20), lost.data(), 60), InvalidArgument,
                 "input height");
    check(make_spec(50, 40, 20, 20), random);
  }
}

// ---- Memory and arguments -----------------------------------------------------------------------

TEST(nothing_is_allocated_once_the_largest_geometry_was_seen) {
  Random random(10);
  for (Named& named : resizers()) {
    Resizer resizer(named.isa);
    const std::vector<uint8_t> in(300 * 300 * 3, 1);
    std::vector<uint8_t> out(300 * 300 * 3);
    const auto run = [&](const ResizeSpec& spec) {
      resizer.resize(spec, in.data(), spec.in_row_bytes(), out.data(), spec.out_row_bytes());
    };
    for (const auto& [large, small] : {std::pair<size_t, size_t>{300, 1},
                                       {300, 300},
                                       {1, 300},
                                       {300, 20},
                                       {299, 100},
                                       {300, 60},
                                       {300, 224},
                                       {300, 299}}) {
      run(make_spec(large, large, small, small, 3, ResizeFilter::kBicubic));
      run(make_spec(300, large, 299, small, 3, ResizeFilter::kBicubic));
      run(make_spec(large, 300, small, 299, 3, ResizeFilter::kBicubic));
    }
    const size_t kept = resizer.scratch_bytes();
    const size_t before = allocations;
    for (int i = 0; i < 300; ++i) {
      run(make_spec(random.between(150, 290), random.between(150, 290), 224, 224));
    }
    EXPECT_EQ(allocations - before, size_t{0});
    EXPECT_EQ(resizer.scratch_bytes(), kept);
  }
}

TEST(a_resizer_can_be_moved) {
  Random random(11);
  const ResizeSpec spec = make_spec(31, 29, 17, 13);
  const Image in = random_image(31, 29, 3, random);
  Image out(17, 13, 3);
  Resizer first;
  first.begin(spec, out.bytes.data(), 51);
  for (size_t y = 0; y < 10; ++y) first.push_row(in.bytes.data() + y * 93);
  Resizer second(std::move(first));
  for (size_t y = 10; y < 29; ++y) second.push_row(in.bytes.data() + y * 93);
  EXPECT(out.bytes == reference_resize(spec, in).bytes);
}

TEST(what_can_never_work_is_refused) {
  Resizer resizer;
  std::vector<uint8_t> memory(4096);
  const auto begin = [&](const ResizeSpec& spec, size_t stride) {
    resizer.begin(spec, memory.data(), stride);
  };
  EXPECT_THROW(begin(make_spec(0, 4, 4, 4), 12), InvalidArgument, "input width is 0");
  EXPECT_THROW(begin(make_spec(4, 0, 4, 4), 12), InvalidArgument, "input height");
  EXPECT_THROW(begin(make_spec(4, 4, 0, 4), 12), InvalidArgument, "output width");
  EXPECT_THROW(begin(make_spec(4, 4, 4, kMaxResizeEdge + 1), 12), InvalidArgument, "output height");
  EXPECT_THROW(begin(make_spec(4, 4, 4, 4, 2), 12), InvalidArgument, "2 channels");
  EXPECT_THROW(begin(make_spec(4, 4, 4, 4, 4), 16), InvalidArgument, "4 channels");
  EXPECT_THROW(begin(make_spec(4, 4, 4, 4), 11), InvalidArgument, "stride of 11");
  EXPECT_THROW(resizer.resize(make_spec(4, 4, 2, 2), memory.data(), 11, memory.data(), 6),
               InvalidArgument, "input row");
  for (const CropBox& window : {CropBox{0, 0, 0, 4}, CropBox{0, 0, 4, 0}, CropBox{1, 0, 4, 4},
                                CropBox{0, 1, 4, 4}, CropBox{4, 0, 1, 1}, CropBox{0, 4, 1, 1}}) {
    ResizeSpec spec = make_spec(9, 9, 4, 4);
    spec.window = window;
    EXPECT_THROW(begin(spec, 12), InvalidArgument, "window");
  }
  EXPECT_THROW(Resizer("sse9"), InvalidArgument, "scalar");
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const ResizeBox& box :
       {ResizeBox{0, 0, 4.5f, 4}, ResizeBox{-1, 0, 4, 4}, ResizeBox{0, -1, 4, 4},
        ResizeBox{0, 0, 4, 5}, ResizeBox{2, 0, 2, 4}, ResizeBox{0, 3, 4, 1},
        ResizeBox{nan, 0, 4, 4}, ResizeBox{0, 0, 4, nan}}) {
    ResizeSpec spec = make_spec(4, 4, 2, 2);
    spec.box = box;
    EXPECT_THROW(begin(spec, 6), InvalidArgument, "box");
  }
}

}  // namespace
}  // namespace fastloader

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
