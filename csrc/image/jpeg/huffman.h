#pragma once

#include <cstddef>
#include <cstdint>

#include "image/jpeg/file.h"

namespace fastloader {

// Huffman tables as the entropy decoder looks into them. Files bring their own tables, so making
// them must be quick: each is put together from ranges of smaller ones, never entry by entry.

/// A code by itself: finds the symbol at the head of 16 bits, one length after the other. The slow
/// way, for codes that are longer than a table's index, and the only one of the scalar decoder.
class HuffmanCode {
 public:
  /// Returns false for what is no prefix code, or has a code of ones only.
  bool set(const HuffmanSpec& spec);

  /// Whether set() was given the same.
  bool is(const HuffmanSpec& spec) const;

  /// Makes is() false.
  void forget() { count_ = kNone; }

  struct Symbol {
    uint8_t length = 0;  ///< of its code; 0: no code begins so
    uint8_t value = 0;
  };

  Symbol find(uint32_t bits16) const {
    for (unsigned length = 1; length <= kMaxCodeLength; ++length) {
      const uint32_t code = bits16 >> (kMaxCodeLength - length);
      if (code < end_[length]) {
        return {static_cast<uint8_t>(length), symbols_[code - end_[length] + last_[length]]};
      }
    }
    return {};
  }

  size_t count() const { return count_; }
  uint8_t symbol(size_t i) const { return symbols_[i]; }
  uint8_t length(size_t i) const { return lengths_[i]; }

 private:
  static constexpr size_t kNone = 257;  // more than a code can have

  /// Of each length, the first code that is too large, and how many symbols have no longer code.
  /// Codes of a length that has none end where shorter ones do, so none is found there.
  uint32_t end_[kMaxCodeLength + 1];
  uint32_t last_[kMaxCodeLength + 1];
  uint8_t symbols_[256];
  uint8_t lengths_[256];
  size_t count_ = kNone;
};

/// For the first coefficients: differences to the block before.
struct DcTable {
  static constexpr unsigned kBits = 9;

  HuffmanCode code;
  /// By the next bits: the code's length, and above it the number of bits of the difference. 0
  /// where the code is longer.
  uint16_t entries[size_t{1} << kBits];
};

/// For the other coefficients. A symbol is a number of zeros to pass over and a number of bits of
/// the coefficient behind them.
struct AcTable {
  static constexpr unsigned kBits = 10;
  static constexpr unsigned kSkipBits = 12;

  // An entry holds all symbols that are wholly in the next bits and whose coefficients lie within
  // four places, so that one store writes them. From its lowest bit:
  //   8 bits  how many bits they take
  //   8       how many places of the block; 128 more if the block ends there
  //   8       how many zeros come before the first coefficient
  //   8       free
  //   4 x 8   the coefficients, signed, and zeros between them
  // An entry of kNotHere places has no symbol: its code or its coefficient is too long.
  static constexpr unsigned kPlacesShift = 8;
  static constexpr unsigned kGapShift = 16;
  static constexpr unsigned kValuesShift = 32;
  static constexpr uint64_t kBlockEnds = 128;
  static constexpr uint64_t kNotHere = 255;

  HuffmanCode code;
  uint64_t entries[size_t{1} << kBits];
  /// For blocks that nobody wants, the lower 16 bits of such an entry. Its symbols need be in the
  /// next bits by their codes only, and their coefficients may lie anywhere.
  uint16_t skips[size_t{1} << kSkipBits];
};

/// Makes tables. One per thread: it keeps the ranges that tables are put together from.
class HuffmanBuilder {
 public:
  /// Makes a table, unless it is that one already. Returns false if the file's code is no prefix
  /// code, or holds a symbol that cannot be.
  template <class Table>
  bool make(const HuffmanSpec& spec, Table& table) {
    if (table.code.is(spec)) return true;
    if (table.code.set(spec) && build(table)) return true;
    table.code.forget();
    return false;
  }

 private:
  bool build(DcTable& table);
  bool build(AcTable& table);
  void build_entries(AcTable& table);
  void build_rests(const HuffmanCode& code);
  void build_skips(AcTable& table);

  /// What may stand behind the first symbol of an entry: it takes a bit of code and one of value.
  static constexpr unsigned kRestBits = AcTable::kBits - 2;
  static constexpr unsigned kMostValues = 4;

  /// Where the entries for so many bits begin: those for fewer bits stand before them.
  static constexpr size_t rest_of(unsigned bits) { return (size_t{1} << bits) - 1; }

  /// [how many places are left for values, 0 to 3][rest_of(how many bits are left)]: entries for
  /// all of these bits, to be added to that of the symbols before them. They hold nothing of the
  /// gap.
  uint64_t rests_[kMostValues][(size_t{2} << kRestBits) - 1];
  /// [rest_of(how many bits are left)]: the same of the skips.
  uint16_t skip_rests_[(size_t{1} << AcTable::kSkipBits) - 1];
};

}  // namespace fastloader
