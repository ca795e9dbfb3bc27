#include "image/recipe/sized.h"

#include <cmath>
#include <optional>
#include <utility>

#include "base/error.h"
#include "image/recipe/perspective.h"

namespace fastloader {
namespace {

using Numbers = std::vector<double>;
using Operations = std::vector<Operation>;

/// An edge, or anything else that is a whole number of pixels.
size_t pixels(const char* what, double number, size_t least) {
  // Written so that NaN is refused.
  if (number >= static_cast<double>(least) && number <= static_cast<double>(kMaxImageEdge) &&
      std::trunc(number) == number) {
    return static_cast<size_t>(number);
  }
  throw InvalidArgument(std::string(what) + " with " + std::to_string(number) + " pixels; " +
                        std::to_string(least) + " to " + std::to_string(kMaxImageEdge) +
                        " are allowed");
}

void add(Operation::Kind kind, Numbers numbers, Operations& operations) {
  operations.push_back({kind, std::move(numbers)});
}

void add_crop(double left, double top, const ImageSize& size, Operations& operations) {
  add(Operation::Kind::kCrop,
      {left, top, static_cast<double>(size.width), static_cast<double>(size.height)}, operations);
}

void resize_shorter(const Numbers& numbers, const ImageSize& picture, Draws& /*draws*/,
                    Operations& operations) {
  const size_t shorter = pixels("resize_shorter", numbers[0], 1);
  const size_t most = pixels("resize_shorter", numbers[1], 0);
  const ImageSize made =
      resize_shorter_edge(picture, shorter, most == 0 ? std::nullopt : std::optional<size_t>(most));
  add(Operation::Kind::kResize,
      {static_cast<double>(made.height), static_cast<double>(made.width), numbers[2]}, operations);
}

void center_crop_of(const Numbers& numbers, const ImageSize& picture, Draws& /*draws*/,
                    Operations& operations) {
  const ImageSize size{pixels("center_crop", numbers[0], 1), pixels("center_crop", numbers[1], 1)};
  const CenterCrop crop = center_crop(picture, size);
  const auto begin = [](size_t seen, size_t border) {
    return static_cast<double>(seen) - static_cast<double>(border);
  };
  add_crop(begin(crop.box.left, crop.pad_left), begin(crop.box.top, crop.pad_top), size,
           operations);
}

/// The padding of one side of a RandomCrop, which may be negative as torchvision's.
double border(double number) {
  if (std::abs(number) <= static_cast<double>(kMaxImageEdge) && std::trunc(number) == number) {
    return number;
  }
  throw InvalidArgument("random_crop with a border of " + std::to_string(number) + " pixels");
}

void random_crop(const Numbers& numbers, const ImageSize& picture, Draws& draws,
                 Operations& operations) {
  const auto height = static_cast<double>(pixels("random_crop", numbers[0], 1));
  const auto width = static_cast<double>(pixels("random_crop", numbers[1], 1));
  const double needed = numbers[2];
  const double left = border(numbers[3]);
  const double top = border(numbers[4]);
  const double right = border(numbers[5]);
  const double bottom = border(numbers[6]);
  auto made_height = static_cast<double>(picture.height);
  auto made_width = static_cast<double>(picture.width);
  const double lacks_width = needed == 0 ? 0 : std::fmax(0, width - made_width - left - right);
  const double lacks_height = needed == 0 ? 0 : std::fmax(0, height - made_height - top - bottom);
  const auto pad = [&](double l, double t, double r, double b) {
    if (l == 0 && t == 0 && r == 0 && b == 0) return;
    add(Operation::Kind::kPad, {l, t, r, b, numbers[7], numbers[8], numbers[9], numbers[10]},
        operations);
    made_height += t + b;
    made_width += l + r;
  };
  if (needed == 2) {
    pad(left + lacks_width, top + lacks_height, right + lacks_width, bottom + lacks_height);
  } else {
    pad(left, top, right, bottom);
    pad(lacks_width, 0, lacks_width, 0);
    pad(0, lacks_height, 0, lacks_height);
  }
  if (made_height < height || made_width < width) {
    throw InvalidArgument(
        "a random crop of " + std::to_string(static_cast<int64_t>(height)) + "x" +
        std::to_string(static_cast<int64_t>(width)) + " pixels is larger than the picture of " +
        std::to_string(static_cast<int64_t>(made_height)) + "x" +
        std::to_string(static_cast<int64_t>(made_width)) + ": pad_if_needed=True pads it");
  }
  const auto from_top = draws.below(static_cast<uint64_t>(made_height - height) + 1);
  const auto from_left = draws.below(static_cast<uint64_t>(made_width - width) + 1);
  if (made_height == height && made_width == width) return;
  add(Operation::Kind::kCrop,
      {static_cast<double>(from_left), static_cast<double>(from_top), width, height}, operations);
}

void random_resized_crop_of(const Numbers& numbers, const ImageSize& picture, Draws& draws,
                            Operations& operations) {
  const CropRange range{numbers[2], numbers[3], numbers[4], numbers[5]};
  validate(range);
  const CropBox box = random_resized_crop(picture, range, draws);
  add_crop(static_cast<double>(box.left), static_cast<double>(box.top),
           ImageSize{box.height, box.width}, operations);
  add(Operation::Kind::kResize, {numbers[0], numbers[1], numbers[6]}, operations);
}

/// Python's math.radians().
double radians(double degrees) {
  constexpr double kPi = 3.14159265358979323846;
  return degrees * (kPi / 180.0);
}

/// The two versions of torchvision sum in different orders, which tells in the last bit.
template <bool kSecondVersion>
void affine_about(const Numbers& numbers, const ImageSize& picture, Draws& /*draws*/,
                  Operations& operations) {
  // Called through pointers that the compiler cannot see through: it would make one call of a pair,
  // which need not have the last bit of Python's two.
  double (*volatile cosine)(double) = std::cos;
  double (*volatile sine)(double) = std::sin;
  const double turn = radians(numbers[0]);
  const double right = numbers[1];
  const double down = numbers[2];
  const double scale = numbers[3];
  const double shear_x = radians(numbers[4]);
  const double shear_y = radians(numbers[5]);
  const bool centred = numbers.size() < 12;
  const double x = centred ? static_cast<double>(picture.width) * 0.5 : numbers[10];
  const double y = centred ? static_cast<double>(picture.height) * 0.5 : numbers[11];
  const double a0 = cosine(turn - shear_y) / cosine(shear_y);
  const double c0 = sine(turn - shear_y) / cosine(shear_y);
  double b0 = 0;
  double d0 = 0;
  if (kSecondVersion) {
    b0 = -(a0 * std::tan(shear_x) + sine(turn));
    d0 = cosine(turn) - c0 * std::tan(shear_x);
  } else {
    b0 = -cosine(turn - shear_y) * std::tan(shear_x) / cosine(shear_y) - sine(turn);
    d0 = -sine(turn - shear_y) * std::tan(shear_x) / cosine(shear_y) + cosine(turn);
  }
  const double a = d0 / scale;
  const double b = -b0 / scale;
  const double c = -c0 / scale;
  const double d = a0 / scale;
  double e = 0;
  double f = 0;
  if (kSecondVersion) {
    e = x - a * (x + right) - b * (y + down);
    f = y - c * (x + right) - d * (y + down);
  } else {
    e = 0.0 / scale + (a * (-x - right) + b * (-y - down)) + x;
    f = 0.0 / scale + (c * (-x - right) + d * (-y - down)) + y;
  }
  add(Operation::Kind::kAffine, {a, b, e, c, d, f, numbers[6], numbers[7], numbers[8], numbers[9]},
      operations);
}

void random_perspective(const Numbers& numbers, const ImageSize& picture, Draws& draws,
                        Operations& operations) {
  const double distortion = numbers[0];
  if (!(distortion >= 0 && distortion <= 1)) {
    throw InvalidArgument("random_perspective with a distortion of " + std::to_string(distortion) +
                          "; 0 to 1 is allowed");
  }
  const auto most = [&](size_t edge) {
    return static_cast<uint64_t>(distortion * static_cast<double>(edge / 2));
  };
  const uint64_t most_x = most(picture.width);
  const uint64_t most_y = most(picture.height);
  const auto drawn = [&](bool far, size_t edge, uint64_t by) {
    const uint64_t from = far ? edge - by - 1 : 0;
    return static_cast<double>(from + draws.below(by + 1));
  };
  constexpr bool kSides[4][2] = {{false, false}, {true, false}, {true, true}, {false, true}};
  Corners starts{};
  Corners ends{};
  for (size_t i = 0; i < 4; ++i) {
    const auto [right, bottom] = kSides[i];
    ends[i].x = drawn(right, picture.width, most_x);
    ends[i].y = drawn(bottom, picture.height, most_y);
    starts[i].x = right ? static_cast<double>(picture.width - 1) : 0;
    starts[i].y = bottom ? static_cast<double>(picture.height - 1) : 0;
  }
  Numbers made;
  for (const double coefficient : perspective_coefficients(starts, ends)) {
    made.push_back(coefficient);
  }
  made.insert(made.end(), numbers.begin() + 1, numbers.end());
  add(Operation::Kind::kPerspective, std::move(made), operations);
}

/// Python's round(): half to even.
double rounded(double value) { return std::nearbyint(value); }

/// Where one edge of a picture is cut, or continued, to become `wanted` pixels.
struct PlacedEdge {
  double before = 0;  ///< of the border
  double after = 0;
  double begin = 0;  ///< of what is kept
  double made = 0;
};

PlacedEdge placed(double wanted, double found, bool drawn, bool cuts, Draws& draws) {
  PlacedEdge edge;
  const double lacks = std::fmax(0, wanted - found);
  const double over = cuts ? std::fmax(0, found - wanted) : 0;
  const double most = std::fmax(lacks, over);
  double place = lacks > 0 ? std::floor(lacks / 2) : rounded(over / 2);
  if (drawn) place = static_cast<double>(draws.below(static_cast<uint64_t>(most) + 1));
  if (lacks > 0) {
    edge.before = place;
    edge.after = lacks - place;
  } else {
    edge.begin = place;
  }
  edge.made = found + lacks - over;
  return edge;
}

void crop_or_pad(const Numbers& numbers, const ImageSize& picture, Draws& draws,
                 Operations& operations) {
  const auto height = static_cast<double>(pixels("crop_or_pad", numbers[0], 1));
  const auto width = static_cast<double>(pixels("crop_or_pad", numbers[1], 1));
  const bool drawn = numbers[2] != 0;
  const bool cuts = numbers[3] != 0;
  const auto found_height = static_cast<double>(picture.height);
  const auto found_width = static_cast<double>(picture.width);
  const PlacedEdge down = placed(height, found_height, drawn, cuts, draws);
  const PlacedEdge across = placed(width, found_width, drawn, cuts, draws);
  if (down.before + down.after + across.before + across.after > 0) {
    add(Operation::Kind::kPad,
        {across.before, down.before, across.after, down.after, numbers[4], numbers[5], numbers[6],
         numbers[7]},
        operations);
  }
  if (found_height > down.made || found_width > across.made) {
    add(Operation::Kind::kCrop, {across.begin, down.begin, across.made, down.made}, operations);
  }
}

void resize_keep_ratio(const Numbers& numbers, const ImageSize& picture, Draws& /*draws*/,
                       Operations& operations) {
  const auto height = static_cast<double>(pixels("resize_keep_ratio", numbers[0], 1));
  const auto width = static_cast<double>(pixels("resize_keep_ratio", numbers[1], 1));
  const double longest = numbers[2];
  double factor = numbers[3];
  if (!(longest >= 0 && longest <= 1) || !(factor > 0)) {
    throw InvalidArgument("resize_keep_ratio with longest=" + std::to_string(longest) +
                          " and a factor of " + std::to_string(factor));
  }
  const auto found_height = static_cast<double>(picture.height);
  const auto found_width = static_cast<double>(picture.width);
  const double down = found_height / height;
  const double across = found_width / width;
  const double ratio =
      std::fmax(down, across) * longest + std::fmin(down, across) * (1.0 - longest);
  if (numbers[4] != 0) factor = 1.0 / std::sqrt(factor);
  const double aspect = std::sqrt(std::exp(numbers[5]));
  const double made_height = rounded(found_height * (factor / aspect) / ratio);
  const double made_width = rounded(found_width * (factor * aspect) / ratio);
  add(Operation::Kind::kResize, {made_height, made_width, numbers[6]}, operations);
}

void blur_between(const Numbers& numbers, const ImageSize& /*picture*/, Draws& /*draws*/,
                  Operations& operations) {
  const double radius = numbers[0] + (numbers[1] - numbers[0]) * numbers[2];
  add(Operation::Kind::kPillowBlur, {radius, radius}, operations);
}

struct Kind {
  const char* name;
  size_t least;
  size_t most;
  void (*draw)(const Numbers& numbers, const ImageSize& picture, Draws& draws,
               Operations& operations);
};

// In the order of Sized.
constexpr Kind kKinds[] = {
    {"resize_shorter", 3, 3, resize_shorter},
    {"center_crop", 2, 2, center_crop_of},
    {"random_crop", 11, 11, random_crop},
    {"random_resized_crop", 7, 7, random_resized_crop_of},
    {"affine_about", 10, 12, affine_about<false>},
    {"random_perspective", 5, 5, random_perspective},
    {"crop_or_pad", 8, 8, crop_or_pad},
    {"resize_keep_ratio", 7, 7, resize_keep_ratio},
    {"blur_between", 3, 3, blur_between},
    {"affine_about_v2", 10, 12, affine_about<true>},
};
static_assert(sizeof(kKinds) / sizeof(kKinds[0]) == static_cast<size_t>(Sized::kCount));

}  // namespace

const char* name_of(Sized kind) { return kKinds[static_cast<size_t>(kind)].name; }

Sized sized_kind(const std::string& name) {
  size_t number = 0;
  for (const Kind& kind : kKinds) {
    if (name == kind.name) return static_cast<Sized>(number);
    ++number;
  }
  throw InvalidArgument("there is no step " + name);
}

void check_count(Sized kind, size_t numbers) {
  const Kind& known = kKinds[static_cast<size_t>(kind)];
  if (numbers >= known.least && numbers <= known.most) return;
  throw InvalidArgument(std::string(known.name) + " takes " + std::to_string(known.least) + " to " +
                        std::to_string(known.most) + " numbers, not " + std::to_string(numbers));
}

void draw_sized(Sized kind, const Numbers& numbers, const ImageSize& picture, Draws& draws,
                Operations& operations) {
  kKinds[static_cast<size_t>(kind)].draw(numbers, picture, draws, operations);
}

}  // namespace fastloader
