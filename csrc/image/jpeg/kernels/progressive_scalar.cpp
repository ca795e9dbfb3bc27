#include "image/jpeg/kernels/progressive.h"

namespace fastloader {
namespace {

// The format as it is written down (ITU T.81, annex G), symbol by symbol. The other implementations
// are tested against this one.

constexpr unsigned kMostZeros = 15;  // that a symbol passes over on the way to a coefficient

unsigned read_bits(BitReader& reader, unsigned count) {
  if (count == 0) return 0;
  reader.refill();
  const uint32_t bits = reader.peek(count);
  reader.take(count);
  return bits;
}

/// The next `bits` bits as a signed number: figure F.12.
int read_value(BitReader& reader, unsigned bits) {
  if (bits == 0) return 0;
  const int raw = static_cast<int>(read_bits(reader, bits));
  return raw >> (bits - 1) != 0 ? raw : raw - (1 << bits) + 1;
}

bool read_symbol(BitReader& reader, const ProgressiveTable& table, unsigned& zeros,
                 unsigned& bits) {
  reader.refill();
  const HuffmanCode::Symbol symbol = table.code().find(reader.peek(kMaxCodeLength));
  zeros = symbol.value >> 4;
  bits = symbol.value & 15;
  reader.take(symbol.length);
  return symbol.length != 0;
}

bool read_first(ScanRun& run, size_t mcus) {
  for (; mcus > 0; --mcus) {
    for (size_t b = 0; b < run.blocks; ++b) {
      FirstBlock& block = run.block[b];
      unsigned zeros;
      unsigned bits;
      if (!read_symbol(run.reader, *block.table, zeros, bits)) return false;
      int32_t& prediction = run.prediction[block.component];
      prediction += read_value(run.reader, bits);
      *block.to = coefficient_of(prediction, run.low);
      block.to += block.step;
    }
    if (run.reader.next > run.limit) return false;
  }
  return true;
}

/// Makes `run.ended` the number of blocks in which the band ends, from this one on.
void read_end(ScanRun& run, unsigned bits) {
  run.ended = (1u << bits) + read_bits(run.reader, bits);
}

bool read_band_block(ScanRun& run, uint64_t& nonzero, int16_t* coefficients) {
  unsigned place = run.first;
  while (run.ended == 0 && place <= run.last) {
    unsigned zeros;
    unsigned bits;
    if (!read_symbol(run.reader, *run.table, zeros, bits)) return false;
    if (bits == 0 && zeros < kMostZeros) {
      read_end(run, zeros);
      break;
    }
    place += zeros;
    if (place > run.last) return false;
    if (bits > 0) {
      if (bits + run.low > kMostCoefficientBits) return false;
      coefficients[place] = coefficient_of(read_value(run.reader, bits), run.low);
      nonzero |= uint64_t{1} << place;
    }
    ++place;
  }
  if (run.ended > 0) --run.ended;
  return run.reader.next <= run.limit;
}

/// Reads a further bit of the coefficients from `place` on that were not 0, up to the place behind
/// `zeros` of those that were. Returns that place, or the one behind the band.
unsigned refine_up_to(ScanRun& run, unsigned place, unsigned zeros, uint64_t nonzero,
                      int16_t* coefficients) {
  for (; place <= run.last; ++place) {
    if ((nonzero >> place & 1) == 0) {
      if (zeros == 0) break;
      --zeros;
    } else if (read_bits(run.reader, 1) != 0) {
      const int sign = coefficients[place] < 0 ? -1 : 1;
      coefficients[place] =
          static_cast<int16_t>(coefficients[place] + coefficient_of(sign, run.low));
    }
  }
  return place;
}

bool refine_band_block(ScanRun& run, uint64_t& nonzero, int16_t* coefficients) {
  const uint64_t before = nonzero;
  unsigned place = run.first;
  while (run.ended == 0 && place <= run.last) {
    unsigned zeros;
    unsigned bits;
    if (!read_symbol(run.reader, *run.table, zeros, bits)) return false;
    if (bits == 0 && zeros < kMostZeros) {
      read_end(run, zeros);
      break;
    }
    if (bits > 1) return false;
    // Its sign stands before the bits of the others that are passed on the way to its place.
    const int value = bits == 0 ? 0 : read_bits(run.reader, 1) != 0 ? 1 : -1;
    place = refine_up_to(run, place, zeros, before, coefficients);
    if (place > run.last) return false;
    if (value != 0) {
      coefficients[place] = coefficient_of(value, run.low);
      nonzero |= uint64_t{1} << place;
    }
    ++place;
  }
  if (run.ended > 0) {
    --run.ended;
    refine_up_to(run, place, kJpegBlock, before, coefficients);
  }
  return run.reader.next <= run.limit;
}

template <bool (*kDecodeBlock)(ScanRun& run, uint64_t& nonzero, int16_t* coefficients)>
bool decode_blocks(ScanRun& run, const BandBlocks& blocks) {
  int16_t unwanted[kJpegBlock] = {};
  for (size_t i = 0; i < blocks.count; ++i) {
    uint64_t nonzero = blocks.nonzero[i];
    int16_t* const coefficients =
        blocks.wanted == BlockPart::kCoefficients ? blocks.coefficients + i * kJpegBlock : unwanted;
    if (!kDecodeBlock(run, nonzero, coefficients)) return false;
    if (blocks.wanted != BlockPart::kNothing) blocks.nonzero[i] = nonzero;
  }
  return true;
}

}  // namespace

const JpegProgressiveKernels kJpegProgressiveScalar = {read_first, decode_blocks<read_band_block>,
                                                       decode_blocks<refine_band_block>};

}  // namespace fastloader
