#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "check.h"
#include "image/dispatch.h"
#include "image/jpeg/kernels/entropy.h"
#include "random.h"

// Decoding by tables against the format as it is written down: random codes, sensible and strange,
// and random bits.

namespace fastloader::testing {
namespace {

/// A code as a file holds it.
struct Code {
  uint8_t lengths[kMaxCodeLength] = {};
  std::vector<uint8_t> symbols;

  HuffmanSpec spec() const { return {lengths, symbols.data(), symbols.size()}; }
};

/// Grows a tree by splitting leaves. `bushy` splits any leaf, otherwise the deepest one, which
/// gives one code of every length. With `holes`, some leaves have no symbol.
Code random_code(Random& random, std::vector<uint8_t> symbols, bool bushy, bool holes) {
  for (size_t i = symbols.size(); i > 1; --i) {
    std::swap(symbols[i - 1], symbols[random.below(static_cast<uint32_t>(i))]);
  }
  // Random bits are soon more than a block holds, unless its end has a short code.
  const auto end = std::find(symbols.begin(), symbols.end(), 0);
  if (end != symbols.end() && random.chance(80)) std::iter_swap(symbols.begin(), end);
  std::vector<unsigned> leaves{1, 1};
  for (size_t tries = 0; leaves.size() <= symbols.size() && tries < 4000; ++tries) {
    const size_t leaf = bushy ? random.below(static_cast<uint32_t>(leaves.size()))
                              : leaves.size() - 1 - random.below(2);
    if (leaves[leaf] == kMaxCodeLength) continue;
    ++leaves[leaf];
    leaves.push_back(leaves[leaf]);
  }
  std::sort(leaves.begin(), leaves.end());
  leaves.pop_back();  // a code of ones only is none
  if (holes)
    leaves.resize(leaves.size() -
                  random.below(static_cast<uint32_t>(std::min<size_t>(4, leaves.size()))));
  leaves.resize(std::min(leaves.size(), symbols.size()));
  Code code;
  for (const unsigned length : leaves) ++code.lengths[length - 1];
  code.symbols.assign(symbols.begin(), symbols.begin() + static_cast<ptrdiff_t>(leaves.size()));
  return code;
}

std::vector<uint8_t> dc_symbols(Random& random) {
  std::vector<uint8_t> symbols;
  const uint32_t most = random.chance(80) ? 11 : 15;
  for (uint32_t size = 0; size <= most; ++size) symbols.push_back(static_cast<uint8_t>(size));
  return symbols;
}

std::vector<uint8_t> ac_symbols(Random& random) {
  std::vector<uint8_t> symbols;
  const uint32_t most_zeros = random.chance(50) ? 15 : random.below(16);
  const uint32_t most_bits = random.chance(50) ? random.between(1, 5) : random.between(5, 15);
  for (uint32_t zeros = 0; zeros <= most_zeros; ++zeros) {
    for (uint32_t bits = 1; bits <= most_bits; ++bits) {
      if (random.chance(70)) symbols.push_back(static_cast<uint8_t>(zeros << 4 | bits));
    }
  }
  if (random.chance(90)) symbols.push_back(0);
  if (random.chance(80)) symbols.push_back(0xf0);
  if (random.chance(10)) symbols.push_back(0x30);  // an end of the block, to a sequential decoder
  if (symbols.size() < 2) symbols = {0x01, 0x00};
  return symbols;
}

/// One MCU's tables, and where its blocks go.
struct Mcu {
  std::vector<std::unique_ptr<DcTable>> dc;
  std::vector<std::unique_ptr<AcTable>> ac;
  std::vector<size_t> component;
};

bool make_mcu(Random& random, HuffmanBuilder& builder, Mcu& mcu) {
  const size_t components = random.between(1, 3);
  for (size_t c = 0; c < components; ++c) {
    mcu.dc.push_back(std::make_unique<DcTable>());
    mcu.ac.push_back(std::make_unique<AcTable>());
    const bool holes = random.chance(20);
    const Code dc = random_code(random, dc_symbols(random), random.chance(50), holes);
    const Code ac = random_code(random, ac_symbols(random), random.chance(70), holes);
    if (!builder.make(dc.spec(), *mcu.dc[c]) || !builder.make(ac.spec(), *mcu.ac[c])) return false;
    const uint32_t blocks = components == 1 ? 1 : random.between(1, c == 0 ? 4 : 3);
    for (uint32_t b = 0; b < blocks; ++b) mcu.component.push_back(c);
  }
  return true;
}

/// What a kernel makes of some bits.
struct Outcome {
  size_t done = 0;
  bool damaged = false;
  int64_t bits_left = 0;
  std::vector<int32_t> predictions;
  std::vector<int> coefficients;  // block by block, after its place and its last coefficient
  std::vector<uint8_t> samples;   // of flat blocks
  bool clean = true;              // nothing is left behind the blocks

  bool operator==(const Outcome& other) const {
    // After damage, nobody looks at anything else.
    if (damaged || other.damaged) return damaged == other.damaged && done == other.done;
    return done == other.done && bits_left == other.bits_left && predictions == other.predictions &&
           coefficients == other.coefficients && samples == other.samples && clean == other.clean;
  }
};

constexpr size_t kBehind = 64;

/// Begins MCUs up to `behind` bytes behind the last one.
Outcome run(const JpegEntropyKernels& kernels, const Mcu& mcu, std::vector<uint8_t> bytes,
            size_t mcus, uint32_t wanted, bool skip, size_t behind) {
  constexpr size_t kStride = 64 * kJpegEdge * 4;
  const size_t size = bytes.size();
  bytes.resize(size + kMostMcuBytes + 2 * kBehind);
  Outcome outcome;
  outcome.samples.assign(mcu.component.size() * kJpegEdge * kStride, 0);
  auto blocks = std::make_unique<JpegBlocks[]>(kMaxOwnComponents);
  McuRun run;
  run.reader.begin(bytes.data());
  run.low_water = bytes.data() + size + behind;
  run.blocks = mcu.component.size();
  run.wanted = wanted;
  for (size_t b = 0; b < run.blocks; ++b) {
    const size_t c = mcu.component[b];
    run.block[b] = {mcu.dc[c].get(),
                    mcu.ac[c].get(),
                    c,
                    outcome.samples.data() + b * kStride * kJpegEdge,
                    kJpegEdge,
                    kStride,
                    static_cast<uint16_t>(b + 1)};
  }
  for (size_t c = 0; c < kMaxOwnComponents; ++c) run.decoded[c] = &blocks[c];
  outcome.done = (skip ? kernels.skip : kernels.decode)(run, mcus);
  outcome.damaged = run.damaged;
  outcome.bits_left = run.reader.left(bytes.data() + size);
  outcome.predictions.assign(std::begin(run.prediction), std::end(run.prediction));
  for (size_t c = 0; c < kMaxOwnComponents; ++c) {
    const JpegBlocks& decoded = blocks[c];
    for (size_t i = 0; i < decoded.count; ++i) {
      const JpegBlock& block = decoded.blocks[i];
      outcome.coefficients.push_back(static_cast<int>(block.samples - outcome.samples.data()));
      outcome.coefficients.push_back(static_cast<int>(block.last));
      outcome.coefficients.insert(outcome.coefficients.end(), block.coefficients,
                                  block.coefficients + kJpegBlock);
    }
    // The first coefficient of a flat block may lie there.
    const int16_t* rest = decoded.coefficients + decoded.count * kJpegBlock + 1;
    const int16_t* last = decoded.coefficients + std::size(decoded.coefficients);
    outcome.clean = outcome.clean && std::all_of(rest, last, [](int16_t v) { return v == 0; });
  }
  return outcome;
}

TEST(tables_decode_what_the_format_says) {
  Random random(1701);
  auto builder = std::make_unique<HuffmanBuilder>();
  size_t decoded = 0;
  size_t damaged = 0;
  for (int round = 0; round < 4000; ++round) {
    Mcu mcu;
    if (!make_mcu(random, *builder, mcu)) throw Failure{"a code was refused"};
    std::vector<uint8_t> bytes(random.between(1, 3000));
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.next());
    const size_t mcus = random.between(1, 16);
    const uint32_t wanted = random.below(1u << mcu.component.size());
    const bool skip = random.chance(30);
    const Outcome expected = run(kJpegEntropyScalar, mcu, bytes, mcus, wanted, skip, 8);
    // A reader that takes more bits at a time may be some bytes further when an MCU begins.
    const size_t begun = expected.damaged ? mcus : expected.done;
    EXPECT(expected.clean || expected.damaged);
    decoded += expected.done;
    damaged += expected.damaged ? 1 : 0;
    for (const std::string& name : available_isa_names()) {
      const Outcome outcome =
          run(*isa_by_name(name).jpeg_entropy, mcu, bytes, begun, wanted, skip, kBehind);
      if (!(outcome == expected)) {
        throw Failure{name + " differs in round " + std::to_string(round) + ": " +
                      std::to_string(outcome.done) + " of " + std::to_string(expected.done) +
                      " MCUs, damaged: " + std::to_string(outcome.damaged) + ", not " +
                      std::to_string(expected.damaged)};
      }
    }
  }
  // Random bits are soon damage, and both must occur often.
  std::printf("      %zu MCUs, %zu times damage\n", decoded, damaged);
  EXPECT(decoded > 5000);
  EXPECT(damaged > 500);
}

TEST(what_is_no_prefix_code_is_refused) {
  HuffmanBuilder builder;
  DcTable table;
  Code code;
  code.lengths[0] = 3;
  code.symbols = {0, 1, 2};
  EXPECT(!builder.make(code.spec(), table));
  code.lengths[0] = 1;
  code.lengths[1] = 2;  // one of them of ones only
  EXPECT(!builder.make(code.spec(), table));
  code.lengths[1] = 1;
  code.lengths[2] = 1;
  EXPECT(builder.make(code.spec(), table));
  code.symbols[1] = 16;
  EXPECT(!builder.make(code.spec(), table));
  code.symbols[1] = 1;
  EXPECT(builder.make(code.spec(), table));
}

TEST(bytes_come_out_without_their_stuffing) {
  Random random(1702);
  for (int round = 0; round < 3000; ++round) {
    std::vector<uint8_t> plain(random.below(400));
    std::vector<uint8_t> stuffed;
    for (uint8_t& byte : plain) {
      byte =
          random.chance(random.below(2) == 0 ? 1 : 40) ? 0xff : static_cast<uint8_t>(random.next());
      stuffed.push_back(byte);
      if (byte == 0xff) stuffed.push_back(0);
    }
    const size_t end = stuffed.size();
    const uint32_t kind = random.below(3);
    if (kind == 0) stuffed.insert(stuffed.end(), {0xff, 0xd9, 1, 2, 3});
    if (kind == 1) stuffed.push_back(0xff);
    const size_t room = random.chance(50) ? 1000 : random.between(1, 200);
    for (const std::string& name : available_isa_names()) {
      std::vector<uint8_t> out(room + 64 + 16, 0xaa);
      const uint8_t* in = stuffed.data();
      std::vector<uint8_t> joined;
      Unstuffed step;
      do {
        step = isa_by_name(name).jpeg_entropy->unstuff(in, stuffed.data() + stuffed.size(),
                                                       out.data(), out.data() + room);
        EXPECT(step.ended || step.out >= out.data() + room);
        EXPECT(step.out <= out.data() + room + 64);
        joined.insert(joined.end(), out.data(), step.out);
        in = step.in;
      } while (!step.ended);
      EXPECT(joined == plain);
      EXPECT_EQ(static_cast<size_t>(in - stuffed.data()), end);
      for (size_t i = room + 64; i < out.size(); ++i) EXPECT_EQ(int{out[i]}, 0xaa);
    }
  }
}

}  // namespace
}  // namespace fastloader::testing

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
