#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string>

namespace fastloader::testing {

/// What a made-up JPEG may be or have. Everything here is allowed, and libjpeg reads it without a
/// warning.
enum class OddTrait : uint8_t {
  // What is in it.
  kGrey,
  k444,
  k422,
  k420,
  k440,
  kOnePixelEdge,  ///< one pixel wide or high
  kDense,         ///< blocks up to their last coefficient
  kFilledMcus,    ///< anything in the blocks behind the picture's edge

  // How it is coded.
  kByLibjpeg,  ///< written by libjpeg's own encoder
  kBaseline,
  kExtended,
  kProgressive,
  kSeveralScans,  ///< of a sequential file
  kUsualScript,
  kRandomScript,
  kRefined,         ///< bits of AC coefficients that come later
  kEarlyDc,         ///< bits of DC coefficients that come later
  kDcApart,         ///< not interleaved
  kLongRuns,        ///< of two blocks or more that end together
  kNoRuns,          ///< in scans where there could be some
  kEveryMcu,        ///< a restart behind each
  kPrimeInterval,   ///< of MCUs
  kRowInterval,     ///< of rows of MCUs
  kBeyondInterval,  ///< announced restarts, and a picture too small for one
  kZeroInterval,    ///< announced that there are none
  kRestarts,        ///< restart markers are there

  // Tables.
  kDeepQuantization,  ///< of 16 bits
  kLargeFactors,      ///< some of which need them
  kPlanesDiffer,      ///< one quantisation for each component
  kStandardHuffman,
  kOptimalHuffman,
  kOneBit,        ///< a code of one bit
  kAllLengths,    ///< codes of all lengths from 1 to 16
  kRareFirst,     ///< the commonest symbol has the longest code
  kSixteenBits,   ///< which has 16 bits
  kUnusedCodes,   ///< symbols that never occur
  kHighNumbers,   ///< tables 2 and 3
  kMergedTables,  ///< several in a segment
  kRedefined,     ///< tables that are replaced before they are used
  kTablesBehind,  ///< a quantisation table behind the frame's header
  kKeptTables,    ///< Huffman tables that serve a later scan, too

  // Segments.
  kJfif,
  kNoJfif,
  kAdobe,
  kExif,
  kForeignApp0,
  kEmptySegment,
  kLongestSegment,
  kComment,
  kSegmentBetween,  ///< one of these behind the first scan
  kOtherNumbers,    ///< components that are not 1, 2 and 3
  kFill,            ///< bytes 0xff before markers
  kFillBeforeRestart,
  kFillBeforeEnd,
  kTrailing,  ///< bytes behind the end

  kCount,
};

constexpr size_t kOddTraits = static_cast<size_t>(OddTrait::kCount);

constexpr const char* kOddTraitNames[] = {
    "grey",
    "4:4:4",
    "4:2:2",
    "4:2:0",
    "4:4:0",
    "an edge of one pixel",
    "dense blocks",
    "filled MCUs",
    "by libjpeg",
    "baseline",
    "extended",
    "progressive",
    "several sequential scans",
    "the usual script",
    "a random script",
    "refined AC",
    "refined DC",
    "DC apart",
    "runs of ended blocks",
    "no runs of ended blocks",
    "restart at every MCU",
    "a prime restart interval",
    "restarts by the row",
    "a restart interval beyond the picture",
    "a restart interval of 0",
    "restart markers",
    "quantisation of 16 bits",
    "factors above 255",
    "a quantisation for each component",
    "standard Huffman tables",
    "optimal Huffman tables",
    "a code of one bit",
    "codes of all lengths",
    "the commonest symbol has the longest code",
    "the commonest symbol has 16 bits",
    "unused codes",
    "Huffman tables 2 and 3",
    "merged tables",
    "redefined tables",
    "quantisation behind the frame",
    "Huffman tables kept from an earlier scan",
    "JFIF",
    "no JFIF",
    "Adobe",
    "EXIF",
    "an APP0 that is not JFIF",
    "an empty segment",
    "the longest segment",
    "a comment",
    "a segment between scans",
    "other numbers of components",
    "fill bytes",
    "fill bytes before a restart",
    "fill bytes before the end",
    "bytes behind the end",
};
static_assert(sizeof kOddTraitNames / sizeof kOddTraitNames[0] == kOddTraits);

class OddTraits {
 public:
  void add(OddTrait trait) { bits_.set(static_cast<size_t>(trait)); }
  void add_if(bool holds, OddTrait trait) {
    if (holds) add(trait);
  }
  bool has(OddTrait trait) const { return bits_.test(static_cast<size_t>(trait)); }

  std::string text() const {
    std::string text;
    for (size_t i = 0; i < kOddTraits; ++i) {
      if (bits_.test(i)) text += (text.empty() ? "" : ", ") + std::string(kOddTraitNames[i]);
    }
    return text;
  }

 private:
  std::bitset<kOddTraits> bits_;
};

}  // namespace fastloader::testing
