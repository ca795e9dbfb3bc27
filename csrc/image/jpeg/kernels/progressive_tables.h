#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "image/jpeg/kernels/inline.h"
#include "image/jpeg/kernels/progressive.h"

namespace fastloader {

/// Decoding by tables: the body of every implementation but the scalar one. Blocks of which no
/// number is wanted are only parsed, which needs their places of coefficients that are not 0, or
/// nothing. `Places` are the operations on such places:
///
///   nth_of(places, hot)                 of these places the one with as many before it as there
///                                       are zeros below the bit `hot`; none: 0
///   spread(bits, places)                puts the lowest bits, one after the other, in these places
///   refine(coefficients, grown, made,   adds 1 << low to the magnitudes of `grown`, makes those of
///          positive, low)               `made` 1 << low, or the negative of it
///
/// It becomes part of functions that have an instruction set, as TableDecoder does.
template <class Places>
class ProgressiveDecoder {
 public:
  static FASTLOADER_JPEG_INLINE bool read_first(ScanRun& run, size_t mcus) {
    BitReader reader = run.reader;  // of its own, so that it stays in registers
    for (; mcus > 0; --mcus) {
      for (size_t b = 0; b < run.blocks; ++b) {
        FirstBlock& block = run.block[b];
        Entry entry = block.table->look_up(reader.bits);
        reader.refill();
        if (__builtin_expect(entry.places() != 0, 0)) {
          entry = block.table->find(reader.bits);
          if (!entry.is_symbol()) return false;
        }
        int32_t& prediction = run.prediction[block.component];
        prediction += static_cast<int32_t>(entry.number(reader.bits));
        entry.take_from(reader);
        *block.to = coefficient_of(prediction, run.low);
        block.to += block.step;
      }
      if (reader.next > run.limit) return false;
    }
    run.reader = reader;
    return true;
  }

  static FASTLOADER_JPEG_INLINE bool read_band(ScanRun& run, const BandBlocks& blocks) {
    switch (blocks.wanted) {
      case BlockPart::kNothing:
        return read_blocks<BlockPart::kNothing>(run, blocks);
      case BlockPart::kPlaces:
        return read_blocks<BlockPart::kPlaces>(run, blocks);
      case BlockPart::kCoefficients:
        break;
    }
    return read_blocks<BlockPart::kCoefficients>(run, blocks);
  }

  static FASTLOADER_JPEG_INLINE bool refine_band(ScanRun& run, const BandBlocks& blocks) {
    switch (blocks.wanted) {
      case BlockPart::kNothing:
        return refine_blocks<BlockPart::kNothing>(run, blocks);
      case BlockPart::kPlaces:
        return refine_blocks<BlockPart::kPlaces>(run, blocks);
      case BlockPart::kCoefficients:
        break;
    }
    return refine_blocks<BlockPart::kCoefficients>(run, blocks);
  }

 private:
  using Entry = ProgressiveTable::Entry;

  // --- a band's first scan -----------------------------------------------------------------------

  template <BlockPart kWanted>
  static FASTLOADER_JPEG_INLINE bool read_blocks(ScanRun& run, const BandBlocks& blocks) {
    BitReader reader = run.reader;
    for (size_t i = 0; i < blocks.count;) {
      if (run.ended > 0) {
        const size_t some = std::min<size_t>(run.ended, blocks.count - i);
        run.ended -= static_cast<uint32_t>(some);
        i += some;
        continue;
      }
      int16_t* const coefficients =
          kWanted == BlockPart::kCoefficients ? blocks.coefficients + i * kJpegBlock : nullptr;
      if (!read_block<kWanted>(run, reader, blocks.nonzero[i], coefficients)) return false;
      if (__builtin_expect(reader.next > run.limit, 0)) return false;
      ++i;
    }
    run.reader = reader;
    return true;
  }

  /// `place` is that of the last coefficient so far. It leaps to the band's last place or beyond
  /// where a look-up ends the band (by kBandEnds), where the entry holds no symbol (by kNotHere),
  /// and where the band is full: so there is one test after a look-up.
  template <BlockPart kWanted>
  static FASTLOADER_JPEG_INLINE bool read_block(ScanRun& run, BitReader& reader, uint64_t& nonzero,
                                                int16_t* coefficients) {
    // Two symbols and the end of a band leave enough of a refill for the next look-up.
    constexpr unsigned kLongestEnd = ProgressiveTable::kBits + 14;
    static_assert(56 - 2 * ProgressiveTable::kMostTaken >= ProgressiveTable::kBits);
    static_assert(56 - ProgressiveTable::kMostTaken - kLongestEnd >= ProgressiveTable::kBits);
    const ProgressiveTable& table = *run.table;
    const unsigned low = run.low;
    const uint64_t last = run.last;
    uint64_t place = run.first - uint64_t{1};
    uint64_t found = 0;
    const auto take = [&](Entry entry) {
      if constexpr (kWanted == BlockPart::kCoefficients) {
        coefficients[place] = coefficient_of(entry.number(reader.bits), low);
      }
      if constexpr (kWanted != BlockPart::kNothing) found |= entry.coefficients() << place;
      entry.take_from(reader);
    };
    for (;;) {
      Entry entry = table.look_up(reader.bits);
      reader.refill();
      place += entry.places();
      if (place < last) {
        take(entry);
        entry = table.look_up(reader.bits);
        place += entry.places();
        if (place < last) {
          take(entry);
          continue;
        }
      }
      if (place > last) {
        if (__builtin_expect(entry.places() != ProgressiveTable::kBandEnds, 0)) {
          place -= entry.places();
          reader.refill();
          entry = table.find(reader.bits);
          place += entry.places();
        }
        if (entry.places() == ProgressiveTable::kBandEnds) {
          run.ended = static_cast<uint32_t>(entry.number(reader.bits));
          entry.take_from(reader);
          break;
        }
        if (!entry.is_symbol() || place > last) return false;
      }
      take(entry);
      if (place == last) break;
    }
    if constexpr (kWanted != BlockPart::kNothing) nonzero |= found;
    return true;
  }

  // --- a further bit of a band -------------------------------------------------------------------

  template <BlockPart kWanted>
  static FASTLOADER_JPEG_INLINE bool refine_blocks(ScanRun& run, const BandBlocks& blocks) {
    BitReader reader = run.reader;
    for (size_t i = 0; i < blocks.count;) {
      if (kWanted != BlockPart::kCoefficients && run.ended > 0) {
        if (!pass_ended(run, reader, blocks, i)) return false;
        continue;
      }
      int16_t* const coefficients =
          kWanted == BlockPart::kCoefficients ? blocks.coefficients + i * kJpegBlock : nullptr;
      if (!refine_block<kWanted>(run, reader, blocks.nonzero[i], coefficients)) return false;
      if (__builtin_expect(reader.next > run.limit, 0)) return false;
      ++i;
    }
    run.reader = reader;
    return true;
  }

  /// Passes over blocks of which nothing but further bits comes: one for each coefficient.
  static FASTLOADER_JPEG_INLINE bool pass_ended(ScanRun& run, BitReader& reader,
                                                const BandBlocks& blocks, size_t& i) {
    const size_t some = std::min<size_t>(run.ended, blocks.count - i);
    const uint64_t band = run.band();
    int64_t bits = 0;
    for (const size_t end = i + some; i < end; ++i) {
      bits += __builtin_popcountll(blocks.nonzero[i] & band);
    }
    run.ended -= static_cast<uint32_t>(some);
    if (bits > reader.left(run.limit)) return false;
    reader.pass(bits);
    return true;
  }

  /// The next place is a matter of places only, not of numbers: with a bit for each, it takes a few
  /// instructions, however many coefficients stand before it. Their further bits are collected in
  /// the order in which they come, and spread at the block's end.
  template <BlockPart kWanted>
  static FASTLOADER_JPEG_INLINE bool refine_block(ScanRun& run, BitReader& reader,
                                                  uint64_t& nonzero, int16_t* coefficients) {
    const ProgressiveTable& table = *run.table;
    const uint64_t before = nonzero & run.band();
    // Those that are still to come.
    uint64_t ones = before;
    uint64_t zeros = ~nonzero & run.band();
    uint64_t further = 0;
    uint64_t made = 0;
    uint64_t positive = 0;
    const auto collect = [&](uint64_t bits, unsigned count) {
      if constexpr (kWanted == BlockPart::kCoefficients) further = further << count | bits;
    };
    if (run.ended == 0) {
      const uint64_t last = uint64_t{1} << run.last;
      uint64_t target;
      do {
        Entry entry = table.look_up(reader.bits);
        const uint64_t hot = table.look_up_hot(reader.bits);
        reader.refill();
        target = Places::nth_of(zeros, hot);
        if (__builtin_expect(target == 0, 0)) {
          if (entry.places() == ProgressiveTable::kNotHere) {
            entry = table.find(reader.bits);
            target = Places::nth_of(zeros, entry.hot());
          }
          if (target == 0) {
            if (entry.places() != ProgressiveTable::kBandEnds) return false;
            run.ended =
                (1u << entry.number_bits()) + static_cast<uint32_t>(entry.number(reader.bits));
            entry.take_from(reader);
            break;
          }
        }
        const uint64_t up_to = target ^ (target - 1);
        const unsigned taken = entry.taken();
        const auto passed = static_cast<unsigned>(__builtin_popcountll(ones & up_to));
        ones &= ~up_to;
        zeros &= ~up_to;
        if constexpr (kWanted != BlockPart::kNothing) {
          made |= target & (0 - entry.coefficients());
        }
        if constexpr (kWanted == BlockPart::kCoefficients) {
          positive |= target & (0 - (reader.bits >> (64 - taken) & 1));
        }
        if (__builtin_expect(taken + passed <= kMostAtOnce, 1)) {
          collect((reader.bits << taken >> 1) >> (63 - passed), passed);
          reader.take(taken + passed);
        } else {
          reader.take(taken);
          collect(take_many(reader, passed), passed);
        }
      } while (target != last);
    }
    if (run.ended > 0) {
      --run.ended;
      const auto rest = static_cast<unsigned>(__builtin_popcountll(ones));
      collect(take_many(reader, rest), rest);
    }
    if constexpr (kWanted != BlockPart::kNothing) nonzero |= made;
    if constexpr (kWanted == BlockPart::kCoefficients) {
      // Each coefficient has got its bit; the first one's is the highest of them.
      const auto count = static_cast<unsigned>(__builtin_popcountll(before));
      const uint64_t grown =
          further == 0 ? 0 : Places::spread(reversed(further) >> ((64 - count) & 63), before);
      if ((grown | made) != 0) Places::refine(coefficients, grown, made, positive, run.low);
    }
    return true;
  }

  /// That leave enough of a refill for the next look-up.
  static constexpr unsigned kMostAtOnce = 40;
  static_assert(56 - kMostAtOnce >= ProgressiveTable::kBits);

  /// Up to 63 bits.
  static FASTLOADER_JPEG_INLINE uint64_t take_many(BitReader& reader, unsigned count) {
    reader.refill();
    uint64_t bits = 0;
    if (__builtin_expect(count > 32, 0)) {
      bits = reader.peek(32);
      reader.take(32);
      reader.refill();
      count -= 32;
    }
    // Shifted twice: there may be none.
    bits = bits << count | (reader.bits >> 1) >> (63 - count);
    reader.take(count);
    return bits;
  }

  static FASTLOADER_JPEG_INLINE uint64_t reversed(uint64_t bits) {
    const auto swap = [&bits](unsigned distance, uint64_t lower) {
      bits = (bits >> distance & lower) | (bits & lower) << distance;
    };
    swap(1, 0x5555555555555555);
    swap(2, 0x3333333333333333);
    swap(4, 0x0f0f0f0f0f0f0f0f);
    return __builtin_bswap64(bits);
  }
};

}  // namespace fastloader
