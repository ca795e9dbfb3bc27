#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "image/jpeg/kernels/entropy.h"
#include "image/jpeg/kernels/inline.h"

namespace fastloader {

// Decoding by tables, several symbols at a look-up: the body of every implementation but the scalar
// one. It is written without instruction sets in mind and becomes part of functions that have one,
// which is worth a tenth: shifts by a variable number of bits that touch no flags, for one.

/// Bits of a difference or a coefficient at the head of `bits`, as a signed number: ITU T.81,
/// figure F.12, without a branch. The number is negative if its highest bit is 0. Turning all bits
/// round makes it positive then, and doing so again afterwards is what subtracts 2^size - 1.
FASTLOADER_JPEG_INLINE int64_t signed_head(uint64_t bits, uint64_t size) {
  const uint64_t turn = ~static_cast<uint64_t>(static_cast<int64_t>(bits) >> 63);
  // Shifted twice: a shift by 64, for a size of 0, is not defined.
  const uint64_t magnitude = ((bits ^ turn) >> 1) >> (63 - size);
  return static_cast<int64_t>(magnitude ^ turn) - static_cast<int64_t>(turn);
}

/// Writes the four values of an entry. Needs no dispatch: what it uses, every x86-64 and every
/// aarch64 has.
FASTLOADER_JPEG_INLINE void store_values(int16_t* to, uint64_t entry) {
#if defined(__x86_64__)
  const __m128i bytes = _mm_cvtsi64_si128(static_cast<long long>(entry));
  const __m128i words = _mm_srai_epi16(_mm_unpacklo_epi8(bytes, bytes), 8);
  // Not _mm_storeh_pd(), which wants an address that a double may have.
  _mm_storeh_pi(reinterpret_cast<__m64*>(to), _mm_castsi128_ps(words));
#elif defined(__aarch64__)
  vst1_s16(to, vget_high_s16(vmovl_s8(vcreate_s8(entry))));
#else
  for (unsigned i = 0; i < 4; ++i) {
    to[i] = static_cast<int8_t>(entry >> (AcTable::kValuesShift + 8 * i));
  }
#endif
}

/// Decodes blocks of one MCU after the other.
class TableDecoder {
 public:
  static FASTLOADER_JPEG_INLINE size_t decode(McuRun& run, size_t mcus) {
    BitReader reader = run.reader;  // of its own, so that it stays in registers
    size_t done = 0;
    for (; done < mcus && reader.next <= run.low_water; ++done) {
      for (size_t b = 0; b < run.blocks; ++b) {
        McuBlock& block = run.block[b];
        int32_t& prediction = run.prediction[block.component];
        uint8_t* const samples = block.samples;
        block.samples += block.step;
        if ((run.wanted >> b & 1) == 0) {
          if (!skip_block(reader, block, prediction)) return stop(run, reader, done);
          continue;
        }
        JpegBlocks& decoded = *run.decoded[block.component];
        int16_t* const coefficients = decoded.coefficients + decoded.count * kJpegBlock;
        const int64_t last = decode_block(reader, block, prediction, coefficients);
        if (last > 0) {
          decoded.blocks[decoded.count++] = {coefficients, samples, static_cast<uint32_t>(last)};
        } else if (last == 0) {
          write_flat_block(coefficients[0], block.factor, samples, block.stride);
        } else {
          return stop(run, reader, done);
        }
      }
    }
    run.reader = reader;
    return done;
  }

  static FASTLOADER_JPEG_INLINE size_t skip(McuRun& run, size_t mcus) {
    BitReader reader = run.reader;
    size_t done = 0;
    for (; done < mcus && reader.next <= run.low_water; ++done) {
      for (size_t b = 0; b < run.blocks; ++b) {
        const McuBlock& block = run.block[b];
        if (!skip_block(reader, block, run.prediction[block.component])) {
          return stop(run, reader, done);
        }
      }
    }
    run.reader = reader;
    return done;
  }

 private:
  /// What became of a symbol that was decoded by itself.
  enum class Single : uint8_t { kGoOn, kBlockEnds, kDamaged };

  static size_t stop(McuRun& run, const BitReader& reader, size_t done) {
    run.reader = reader;
    run.damaged = true;
    return done;
  }

  static FASTLOADER_JPEG_INLINE bool read_difference(BitReader& reader, const DcTable& table,
                                                     int32_t& prediction) {
    const uint32_t entry = table.entries[reader.bits >> (64 - DcTable::kBits)];
    if (__builtin_expect(entry == 0, 0)) return read_long_difference(reader, table, prediction);
    const uint64_t length = entry & 0xff;
    const uint64_t size = entry >> 8;
    prediction += static_cast<int32_t>(signed_head(reader.bits << length, size));
    reader.take(length + size);
    return true;
  }

  __attribute__((noinline)) static bool read_long_difference(BitReader& reader,
                                                             const DcTable& table,
                                                             int32_t& prediction) {
    const HuffmanCode::Symbol symbol = table.code.find(reader.peek(kMaxCodeLength));
    if (symbol.length == 0) return false;
    reader.take(symbol.length);
    prediction += static_cast<int32_t>(signed_head(reader.bits, symbol.value));
    reader.take(symbol.value);
    reader.refill();
    return true;
  }

  /// Where a block stood before an entry was taken.
  struct Before {
    uint64_t bits;
    uint64_t count;
    uint64_t place;
  };

  /// Returns the place of the block's last coefficient, or -1.
  ///
  /// `place` is that of the last coefficient so far. It leaps over 63 where a look-up ends the
  /// block (by 128), where the entry holds no symbol (by 255), and where the block is full and the
  /// entry has taken bits of the next one for its symbols: so there is one test after a look-up.
  static FASTLOADER_JPEG_INLINE int64_t decode_block(BitReader& reader, const McuBlock& block,
                                                     int32_t& prediction, int16_t* coefficients) {
    reader.refill();
    if (!read_difference(reader, *block.dc, prediction)) return -1;
    coefficients[0] = static_cast<int16_t>(prediction);
    const AcTable& table = *block.ac;
    Before before;
    uint64_t place = 0;
    uint64_t entry;
    // The difference has left 32 bits at least, which are two look-ups and a symbol by itself.
    if (look_up(reader, table, coefficients, place, entry, before)) goto leapt;
    if (look_up(reader, table, coefficients, place, entry, before)) goto leapt;
    for (;;) {
      reader.refill();
      if (look_up(reader, table, coefficients, place, entry, before)) goto leapt;
      if (look_up(reader, table, coefficients, place, entry, before)) goto leapt;
      if (look_up(reader, table, coefficients, place, entry, before)) goto leapt;
      continue;
    leapt:
      if (__builtin_expect(place - AcTable::kBlockEnds < kJpegBlock - 1, 1)) {
        return static_cast<int64_t>(place - AcTable::kBlockEnds);
      }
      if (place == kJpegBlock - 1) return kJpegBlock - 1;
      reader.bits = before.bits;
      reader.count = before.count;
      place = before.place;
      switch (read_single(reader, table, coefficients, place)) {
        case Single::kGoOn:
          continue;
        case Single::kBlockEnds:
          return static_cast<int64_t>(place);
        case Single::kDamaged:
          return -1;
      }
    }
  }

  /// Takes the symbols of one entry, and returns whether `place` has leapt.
  static FASTLOADER_JPEG_INLINE bool look_up(BitReader& reader, const AcTable& table,
                                             int16_t* coefficients, uint64_t& place,
                                             uint64_t& entry, Before& before) {
    entry = table.entries[reader.bits >> (64 - AcTable::kBits)];
    before = {reader.bits, reader.count, place};
    store_values(coefficients + 1 + place + (entry >> AcTable::kGapShift & 0xff), entry);
    reader.take(entry);
    place += entry >> AcTable::kPlacesShift & 0xff;
    return place >= kJpegBlock - 1;
  }

  /// Takes one symbol that is too long for the table, or the last of a block that is full with it.
  static FASTLOADER_JPEG_INLINE Single read_single(BitReader& reader, const AcTable& table,
                                                   int16_t* coefficients, uint64_t& place) {
    reader.refill();
    const HuffmanCode::Symbol symbol = table.code.find(reader.peek(kMaxCodeLength));
    if (symbol.length == 0) return Single::kDamaged;
    reader.take(symbol.length);
    const uint64_t zeros = symbol.value >> 4;
    const uint64_t size = symbol.value & 15;
    // The look-up that came to nothing may have written behind the block.
    std::memset(coefficients + kJpegBlock, 0, kCoefficientSlack * sizeof *coefficients);
    if (size == 0) {
      if (zeros != 15) return Single::kBlockEnds;
      place += 16;
      if (place >= kJpegBlock) return Single::kDamaged;
    } else {
      place += zeros + 1;
      if (place >= kJpegBlock) return Single::kDamaged;
      coefficients[place] = static_cast<int16_t>(signed_head(reader.bits, size));
      reader.take(size);
    }
    return place == kJpegBlock - 1 ? Single::kBlockEnds : Single::kGoOn;
  }

  /// The same without the coefficients, by a table of more bits.
  static FASTLOADER_JPEG_INLINE bool skip_block(BitReader& reader, const McuBlock& block,
                                                int32_t& prediction) {
    reader.refill();
    if (!read_difference(reader, *block.dc, prediction)) return false;
    const AcTable& table = *block.ac;
    Before before;
    uint64_t place = 0;
    // An entry takes 27 bits at most.
    if (pass(reader, table, place, before)) goto leapt;
    for (;;) {
      reader.refill();
      if (pass(reader, table, place, before)) goto leapt;
      if (pass(reader, table, place, before)) goto leapt;
      continue;
    leapt:
      if (__builtin_expect(place - AcTable::kBlockEnds < kJpegBlock - 1, 1)) return true;
      if (place == kJpegBlock - 1) return true;
      reader.bits = before.bits;
      reader.count = before.count;
      place = before.place;
      switch (pass_single(reader, table, place)) {
        case Single::kGoOn:
          continue;
        case Single::kBlockEnds:
          return true;
        case Single::kDamaged:
          return false;
      }
    }
  }

  static FASTLOADER_JPEG_INLINE bool pass(BitReader& reader, const AcTable& table, uint64_t& place,
                                          Before& before) {
    const uint64_t entry = table.skips[reader.bits >> (64 - AcTable::kSkipBits)];
    before = {reader.bits, reader.count, place};
    reader.take(entry);
    place += entry >> AcTable::kPlacesShift;
    return place >= kJpegBlock - 1;
  }

  __attribute__((noinline)) static Single pass_single(BitReader& reader, const AcTable& table,
                                                      uint64_t& place) {
    reader.refill();
    const HuffmanCode::Symbol symbol = table.code.find(reader.peek(kMaxCodeLength));
    if (symbol.length == 0) return Single::kDamaged;
    const uint64_t zeros = symbol.value >> 4;
    const uint64_t size = symbol.value & 15;
    reader.take(symbol.length + size);
    if (size == 0 && zeros != 15) return Single::kBlockEnds;
    place += zeros + 1;
    if (place >= kJpegBlock) return Single::kDamaged;
    return place == kJpegBlock - 1 ? Single::kBlockEnds : Single::kGoOn;
  }
};

}  // namespace fastloader
