#include <cstring>

#include "image/jpeg/kernels/entropy.h"

namespace fastloader {
namespace {

// The format as it is written down, symbol by symbol. The other implementations take several
// symbols at a time, and are tested against this one.

constexpr int kDamaged = -1;

/// The next `bits` bits as a signed number: ITU T.81, figure F.12.
int read_value(BitReader& reader, unsigned bits) {
  if (bits == 0) return 0;
  reader.refill();
  const int raw = static_cast<int>(reader.peek(bits));
  reader.take(bits);
  return raw >> (bits - 1) != 0 ? raw : raw - (1 << bits) + 1;
}

bool read_symbol(BitReader& reader, const HuffmanCode& code, uint8_t& value) {
  reader.refill();
  const HuffmanCode::Symbol symbol = code.find(reader.peek(kMaxCodeLength));
  if (symbol.length == 0) return false;
  reader.take(symbol.length);
  value = symbol.value;
  return true;
}

/// Returns the last place that a symbol reached, or kDamaged. `coefficients` may be null.
int decode_block(BitReader& reader, const McuBlock& block, int32_t& prediction,
                 int16_t* coefficients) {
  uint8_t symbol;
  if (!read_symbol(reader, block.dc->code, symbol)) return kDamaged;
  prediction += read_value(reader, symbol);
  if (coefficients != nullptr) coefficients[0] = static_cast<int16_t>(prediction);
  int last = 0;
  for (unsigned place = 1; place < kJpegBlock; ++place) {
    if (!read_symbol(reader, block.ac->code, symbol)) return kDamaged;
    const unsigned zeros = symbol >> 4;
    const unsigned bits = symbol & 15;
    if (bits == 0 && zeros != 15) break;
    place += zeros;
    if (place >= kJpegBlock) return kDamaged;
    last = static_cast<int>(place);
    if (bits == 0) continue;
    const int value = read_value(reader, bits);
    if (coefficients != nullptr) coefficients[place] = static_cast<int16_t>(value);
  }
  return last;
}

size_t run_mcus(McuRun& run, size_t mcus, uint32_t wanted) {
  for (size_t done = 0; done < mcus; ++done) {
    if (run.reader.next > run.low_water) return done;
    for (size_t b = 0; b < run.blocks; ++b) {
      McuBlock& block = run.block[b];
      int32_t& prediction = run.prediction[block.component];
      if ((wanted >> b & 1) == 0) {
        if (decode_block(run.reader, block, prediction, nullptr) == kDamaged) run.damaged = true;
      } else {
        JpegBlocks& decoded = *run.decoded[block.component];
        int16_t* coefficients = decoded.coefficients + decoded.count * kJpegBlock;
        const int last = decode_block(run.reader, block, prediction, coefficients);
        if (last > 0) {
          decoded.blocks[decoded.count++] = {coefficients, block.samples,
                                             static_cast<uint32_t>(last)};
        } else {
          write_flat_block(coefficients[0], block.factor, block.samples, block.stride);
        }
        if (last == kDamaged) run.damaged = true;
      }
      if (run.damaged) return done;
    }
    for (size_t b = 0; b < run.blocks; ++b) run.block[b].samples += run.block[b].step;
  }
  return mcus;
}

size_t decode(McuRun& run, size_t mcus) { return run_mcus(run, mcus, run.wanted); }

size_t skip(McuRun& run, size_t mcus) { return run_mcus(run, mcus, 0); }

Unstuffed unstuff(const uint8_t* in, const uint8_t* in_end, uint8_t* out, uint8_t* out_end) {
  while (in < in_end && out < out_end) {
    if (*in != 0xff) {
      *out++ = *in++;
      continue;
    }
    if (in + 1 == in_end || in[1] != 0) return {in, out, true};
    *out++ = 0xff;
    in += 2;
  }
  return {in, out, in == in_end};
}

}  // namespace

const JpegEntropyKernels kJpegEntropyScalar = {unstuff, decode, skip};

}  // namespace fastloader
