#pragma once

#include <cstdint>

namespace fastloader {

// Which of a picture's random numbers a step takes: the word `stream` of Draws. Changing any of
// this changes every picture of a seed. fastloader/transforms/_recipe/draws.py repeats it.
//
//   8 bits   the step's kind, below
//   12 bits  how many steps of that kind come before it in the picture's chain, parents before
//   their
//            children, and what may be done counts as what is done
//   12 bits  which picture of its sample it is
//
// Each kind has a number of its own, so that a step that is put in front of others moves no draws
// but those of its own kind.

constexpr uint32_t kOccurrenceShift = 8;
constexpr uint32_t kPictureShift = 20;
/// How many steps of a kind, and how many pictures of a sample there may be.
constexpr uint32_t kMostOccurrences = uint32_t{1} << (kPictureShift - kOccurrenceShift);
constexpr uint32_t kMostPictures = uint32_t{1} << (32 - kPictureShift);

/// The steps of the head of a chain, which it has at most once. Python takes 3, for the replacement
/// of a bad sample, and 5, for the box that is erased. 16 and 17 are of what fills the boxes
/// (normalize/deviates.h).
enum DrawKind : uint32_t {
  kDrawCrop = 0,
  kDrawHorizontalFlip = 1,
  kDrawVerticalFlip = 2,
  kDrawInterpolation = 4,
};

/// The steps of a recipe: each first number, plus the place in the list of its kind.
constexpr uint32_t kDrawFirstStep = 32;       // Step::Kind
constexpr uint32_t kDrawFirstSized = 48;      // Sized
constexpr uint32_t kDrawFirstOperation = 64;  // Operation::Kind

}  // namespace fastloader
