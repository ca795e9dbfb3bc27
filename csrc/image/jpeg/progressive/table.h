#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "image/jpeg/bit_reader.h"
#include "image/jpeg/file.h"
#include "image/jpeg/huffman.h"

namespace fastloader {

/// What a scan of a progressive file holds.
enum class ScanKind : uint8_t {
  kFirst,        ///< first coefficients of blocks ("DC")
  kFirstRefine,  ///< a further bit of each; it has no symbols
  kBand,         ///< coefficients behind the first ones ("AC")
  kBandRefine,   ///< a further bit of each, and those that were 0 so far
};

ScanKind kind_of(const ProgressiveScan& scan);

/// Magnitudes have so many bits at most. More are nothing that an encoder writes, and might not fit
/// a coefficient.
constexpr unsigned kMostCoefficientBits = 14;

/// The symbols of a scan, for look-ups of one at a time. In a progressive file most symbols stand
/// between bits of other things, so entries of several symbols, as in AcTable, gain nothing.
class ProgressiveTable {
 public:
  static constexpr unsigned kBits = 10;

  /// A symbol, and the bits of a number behind it. All is in one word, since one load is faster
  /// than several. From its lowest bit:
  ///   8 bits  how many bits they are; 0: it is no symbol
  ///   8       how many places of the block are passed over; kBandEnds; kNotHere
  ///   8       where the number's bits are, counted from the lowest of 64, and
  ///   8       how many these are
  ///   16      what is to be added to them, signed, because the number may be negative; of a scan
  ///           that refines a band, 1 << (how many zeros are passed over), or 0 at its end
  ///   15      free
  ///   1       the symbol makes a coefficient
  class Entry {
   public:
    Entry() = default;
    Entry(unsigned taken, uint64_t places, unsigned number_bits, int added, bool coefficient)
        : word_(taken | places << 8 | uint64_t{(64 - taken) & 63} << 16 |
                uint64_t{number_bits} << 24 | uint64_t{static_cast<uint16_t>(added)} << 32 |
                uint64_t{coefficient} << 63) {}

    bool is_symbol() const { return word_ != 0; }
    unsigned taken() const { return word_ & 0xff; }
    uint64_t places() const { return word_ >> 8 & 0xff; }
    uint64_t hot() const { return word_ >> 32 & 0xffff; }
    /// How many the symbol makes: 1 or 0.
    uint64_t coefficients() const { return word_ >> 63; }

    /// `bits` are those at whose head the symbol was found.
    int64_t number(uint64_t bits) const {
      const uint64_t raw = bits >> (word_ >> 16 & 63) & ((uint64_t{1} << number_bits()) - 1);
      return static_cast<int64_t>(raw) + static_cast<int16_t>(word_ >> 32);
    }
    unsigned number_bits() const { return word_ >> 24 & 63; }

    /// take() looks at the lowest bits only.
    void take_from(BitReader& reader) const { reader.take(word_); }

   private:
    uint64_t word_ = 0;
  };
  /// The band has no (further new) coefficients in this block, nor in as many as the number says.
  static constexpr uint64_t kBandEnds = 128;
  /// The symbol is too long for the table, or none.
  static constexpr uint64_t kNotHere = 255;
  /// No symbol in the table takes more bits than this, except for the end of a band.
  static constexpr unsigned kMostTaken = 20;

  /// Returns false if libjpeg does not take the code either.
  bool make(const HuffmanSpec& spec, ScanKind kind, unsigned low);

  /// For the symbol at the head of these bits.
  Entry look_up(uint64_t bits) const { return entries_[bits >> (64 - kBits)]; }

  /// look_up(bits).hot(), by a load of its own: that is there sooner than a part of a word, and a
  /// refinement waits for it.
  uint64_t look_up_hot(uint64_t bits) const {
    uint16_t hot;
    std::memcpy(&hot, reinterpret_cast<const char*>(&entries_[bits >> (64 - kBits)]) + 4,
                sizeof hot);
    return hot;
  }

  /// For any symbol, one length after the other.
  Entry find(uint64_t bits) const;

  const HuffmanCode& code() const { return code_; }

 private:
  Entry entry_of(HuffmanCode::Symbol symbol, bool negative) const;
  bool has_value(uint8_t symbol) const;

  HuffmanCode code_;
  ScanKind kind_ = ScanKind::kFirst;
  unsigned low_ = 0;
  Entry entries_[size_t{1} << kBits];
};

}  // namespace fastloader
