#include "image/jpeg/huffman.h"

#include <algorithm>
#include <iterator>

namespace fastloader {
namespace {

constexpr unsigned kZeros = 16;  // what the symbol for 16 zeros passes over

/// What a symbol means: `zeros` to pass over, then a coefficient of `bits`. Without bits it is the
/// end of the block, or 16 zeros.
struct Meaning {
  unsigned zeros;
  unsigned bits;
  bool ends_block() const { return bits == 0 && zeros != kZeros - 1; }
  bool only_zeros() const { return bits == 0 && zeros == kZeros - 1; }
};

Meaning meaning_of(uint8_t symbol) { return {unsigned{symbol} >> 4, unsigned{symbol} & 15}; }

/// The value of `bits` bits that read as `raw`: ITU T.81, figure F.12.
int value_of(unsigned raw, unsigned bits) {
  const int value = static_cast<int>(raw);
  return raw >> (bits - 1) != 0 ? value : value - (1 << bits) + 1;
}

template <class Entry>
Entry* fill(Entry* to, Entry entry, size_t count) {
  std::fill_n(to, count, entry);
  return to + count;
}

/// `sum` added to each. Fields do not overflow into each other, so one addition serves all of them.
template <class Entry>
Entry* add(Entry* to, const Entry* from, Entry sum, size_t count) {
  for (size_t i = 0; i < count; ++i) to[i] = static_cast<Entry>(from[i] + sum);
  return to + count;
}

/// The `count` entries before `to` again, until there are 2^doublings times as many.
template <class Entry>
Entry* repeat(Entry* to, size_t count, unsigned doublings) {
  for (; doublings != 0; --doublings, count *= 2) to = std::copy_n(to - count, count, to);
  return to;
}

template <class Entry>
Entry places(uint64_t count) {
  return static_cast<Entry>(count << AcTable::kPlacesShift);
}

uint64_t value_at(int value, unsigned place) {
  return uint64_t{static_cast<uint8_t>(value)} << (AcTable::kValuesShift + 8 * place);
}

constexpr unsigned kMostValueBits = 7;  // that fit 8 with their sign

/// The fewest bits that a symbol takes which something may follow in the same block.
unsigned least_bits(const HuffmanCode& code) {
  unsigned least = AcTable::kBits;
  for (size_t i = 0; i < code.count(); ++i) {
    const Meaning symbol = meaning_of(code.symbol(i));
    if (!symbol.ends_block()) least = std::min(least, code.length(i) + symbol.bits);
  }
  return least;
}

}  // namespace

bool HuffmanCode::set(const HuffmanSpec& spec) {
  count_ = spec.count;
  std::copy_n(spec.symbols, count_, symbols_);
  uint32_t code = 0;
  uint32_t done = 0;
  for (unsigned length = 1; length <= kMaxCodeLength; ++length) {
    const uint32_t count = spec.lengths[length - 1];
    std::fill_n(lengths_ + done, count, static_cast<uint8_t>(length));
    done += count;
    code += count;
    // No code consists of ones only, libjpeg insists.
    if (code >= uint32_t{1} << length) return false;
    end_[length] = code;
    last_[length] = done;
    code <<= 1;
  }
  return true;
}

bool HuffmanCode::is(const HuffmanSpec& spec) const {
  if (count_ != spec.count || !std::equal(symbols_, symbols_ + count_, spec.symbols)) return false;
  uint32_t done = 0;
  for (unsigned length = 1; length <= kMaxCodeLength; ++length) {
    done += spec.lengths[length - 1];
    if (last_[length] != done) return false;
  }
  return true;
}

bool HuffmanBuilder::build(DcTable& table) {
  uint16_t* to = table.entries;
  uint16_t* const end = to + std::size(table.entries);
  for (size_t i = 0; i < table.code.count(); ++i) {
    const unsigned bits = table.code.symbol(i);
    if (bits > 15) return false;
    const unsigned length = table.code.length(i);
    if (length > DcTable::kBits) continue;
    to =
        fill(to, static_cast<uint16_t>(length | bits << 8), size_t{1} << (DcTable::kBits - length));
  }
  std::fill(to, end, uint16_t{0});
  return true;
}

bool HuffmanBuilder::build(AcTable& table) {
  build_entries(table);
  build_skips(table);
  return true;
}

void HuffmanBuilder::build_rests(const HuffmanCode& code) {
  // A symbol with a coefficient takes two bits, and most codes have none that takes so few.
  const unsigned least = std::max(least_bits(code), AcTable::kBits - kRestBits);
  for (unsigned left = 0; left + least <= AcTable::kBits; ++left) {
    for (unsigned room = 0; room < kMostValues; ++room) {
      // With less room than that, this stands behind two symbols.
      if (room + 1 < kMostValues && left + 2 * least > AcTable::kBits) continue;
      uint64_t* to = rests_[room] + rest_of(left);
      uint64_t* const end = to + (size_t{1} << left);
      // Codes come in ascending order, so their ranges do as well.
      for (size_t i = 0; i < code.count() && code.length(i) <= left; ++i) {
        const unsigned length = code.length(i);
        const size_t range = size_t{1} << (left - length);
        const Meaning symbol = meaning_of(code.symbol(i));
        if (symbol.ends_block()) {
          to = fill(to, length + places<uint64_t>(AcTable::kBlockEnds), range);
          continue;
        }
        const unsigned taken = length + symbol.bits;
        if (symbol.only_zeros() || symbol.zeros >= room || taken > left ||
            symbol.bits > kMostValueBits) {
          to = fill(to, uint64_t{0}, range);
          continue;
        }
        const uint64_t* rest = rests_[room - symbol.zeros - 1] + rest_of(left - taken);
        const uint64_t sum = taken + places<uint64_t>(symbol.zeros + 1);
        const unsigned place = kMostValues - room + symbol.zeros;
        for (unsigned raw = 0; raw < 1u << symbol.bits; ++raw) {
          to = add(to, rest, sum + value_at(value_of(raw, symbol.bits), place),
                   size_t{1} << (left - taken));
        }
      }
      std::fill(to, end, uint64_t{0});
    }
  }
}

void HuffmanBuilder::build_entries(AcTable& table) {
  build_rests(table.code);
  uint64_t* to = table.entries;
  uint64_t* const end = to + std::size(table.entries);
  for (size_t i = 0; i < table.code.count() && table.code.length(i) <= AcTable::kBits; ++i) {
    const unsigned length = table.code.length(i);
    const size_t range = size_t{1} << (AcTable::kBits - length);
    const Meaning symbol = meaning_of(table.code.symbol(i));
    const unsigned taken = length + symbol.bits;
    if (symbol.ends_block()) {
      to = fill(to, length + places<uint64_t>(AcTable::kBlockEnds), range);
    } else if (symbol.only_zeros()) {
      to = fill(to, length + places<uint64_t>(kZeros), range);
    } else if (taken > AcTable::kBits || symbol.bits > kMostValueBits) {
      to = fill(to, places<uint64_t>(AcTable::kNotHere), range);
    } else {
      const unsigned left = AcTable::kBits - taken;
      const uint64_t sum = taken + places<uint64_t>(symbol.zeros + 1) +
                           (uint64_t{symbol.zeros} << AcTable::kGapShift);
      for (unsigned raw = 0; raw < 1u << symbol.bits; ++raw) {
        to = add(to, rests_[kMostValues - 1] + rest_of(left),
                 sum + value_at(value_of(raw, symbol.bits), 0), size_t{1} << left);
      }
    }
  }
  std::fill(to, end, places<uint64_t>(AcTable::kNotHere));
}

void HuffmanBuilder::build_skips(AcTable& table) {
  // The most places that an entry of so many bits passes over.
  unsigned most[AcTable::kSkipBits + 1] = {};
  const unsigned least = least_bits(table.code);
  for (unsigned left = 0; left <= AcTable::kSkipBits; ++left) {
    const bool last = left == AcTable::kSkipBits;
    if (!last && left + least > AcTable::kSkipBits) continue;  // nothing leaves so many
    uint16_t* to = last ? table.skips : skip_rests_ + rest_of(left);
    uint16_t* const end = to + (size_t{1} << left);
    for (size_t i = 0; i < table.code.count() && table.code.length(i) <= left; ++i) {
      const unsigned length = table.code.length(i);
      const size_t range = size_t{1} << (left - length);
      const Meaning symbol = meaning_of(table.code.symbol(i));
      if (symbol.ends_block()) {
        to = fill(to, static_cast<uint16_t>(length + places<uint16_t>(AcTable::kBlockEnds)), range);
        continue;
      }
      const unsigned taken = length + symbol.bits;
      const unsigned passed = symbol.only_zeros() ? kZeros : symbol.zeros + 1;
      const auto sum = static_cast<uint16_t>(taken + places<uint16_t>(passed));
      if (taken >= left) {
        to = fill(to, sum, range);
        most[left] = std::max(most[left], passed);
        continue;
      }
      most[left] = std::max(most[left], passed + most[left - taken]);
      // Coefficients have no place in an entry: all that differ in theirs alone are the same.
      const size_t rests = size_t{1} << (left - taken);
      to = repeat(add(to, skip_rests_ + rest_of(left - taken), sum, rests), rests, symbol.bits);
    }
    std::fill(to, end, last ? places<uint16_t>(AcTable::kNotHere) : uint16_t{0});
  }
  if (most[AcTable::kSkipBits] <= kJpegBlock) return;
  // A strange code, in which many zeros take few bits. Places could be taken for an end of the
  // block there, so each entry gets one symbol.
  uint16_t* to = table.skips;
  for (size_t i = 0; i < table.code.count() && table.code.length(i) <= AcTable::kSkipBits; ++i) {
    const unsigned length = table.code.length(i);
    const Meaning symbol = meaning_of(table.code.symbol(i));
    const uint64_t passed = symbol.ends_block()   ? AcTable::kBlockEnds
                            : symbol.only_zeros() ? kZeros
                                                  : symbol.zeros + 1;
    to = fill(to, static_cast<uint16_t>(length + symbol.bits + places<uint16_t>(passed)),
              size_t{1} << (AcTable::kSkipBits - length));
  }
}

}  // namespace fastloader
