#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>  // jpeglib.h uses FILE and size_t without including them
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include <jpeglib.h>

#include "jpeg_samples.h"

// Huffman tables as good encoders write them, and valid ones that none would.

namespace fastloader::testing {

constexpr size_t kLongestCode = 16;

/// As a file has it: how many codes there are of each length, and the symbols by their codes.
struct HuffmanTable {
  std::array<uint8_t, kLongestCode + 1> counts{};  // [0] is 0
  std::vector<uint8_t> symbols;

  bool operator==(const HuffmanTable& other) const {
    return counts == other.counts && symbols == other.symbols;
  }

  bool has_all_lengths() const {
    return std::find(counts.begin() + 1, counts.end(), 0) == counts.end();
  }
};

/// How often a scan has each symbol.
using SymbolCounts = std::array<uint32_t, 256>;

struct HuffmanCode {
  uint16_t bits = 0;
  uint8_t length = 0;  ///< 0: the table does not have the symbol
};

using HuffmanCodes = std::array<HuffmanCode, 256>;

inline HuffmanCodes codes_of(const HuffmanTable& table) {
  HuffmanCodes codes;
  uint32_t code = 0;
  size_t next = 0;
  for (size_t length = 1; length <= kLongestCode; ++length) {
    for (size_t i = 0; i < table.counts[length]; ++i) {
      codes[table.symbols[next++]] = {static_cast<uint16_t>(code++), static_cast<uint8_t>(length)};
    }
    code <<= 1;
  }
  return codes;
}

/// Annex K of the standard, from libjpeg: `number` 0 is for brightness and 1 for colour.
inline HuffmanTable standard_table(bool ac, int number) {
  jpeg_error_mgr errors;
  jpeg_compress_struct info{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  info.in_color_space = JCS_RGB;
  info.input_components = 3;
  jpeg_set_defaults(&info);
  const JHUFF_TBL& from = *(ac ? info.ac_huff_tbl_ptrs : info.dc_huff_tbl_ptrs)[number];
  HuffmanTable table;
  size_t symbols = 0;
  for (size_t length = 1; length <= kLongestCode; ++length) {
    symbols += table.counts[length] = from.bits[length];
  }
  table.symbols.assign(from.huffval, from.huffval + symbols);
  jpeg_destroy_compress(&info);
  return table;
}

enum class HuffmanShape : uint8_t {
  kOptimal,   ///< what the counts ask for
  kBalanced,  ///< all codes of about the same length
  kChain,     ///< one code of each length as far as that goes, so one of a single bit
  kRandom,
};

/// Which symbols get the short codes, unless the shape is kOptimal.
enum class HuffmanOrder : uint8_t { kCommonFirst, kRareFirst, kAny };

namespace huffman_detail {

/// Of the symbols with these counts; the code of ones alone stays free, as the standard demands.
inline std::vector<uint8_t> optimal_lengths(std::vector<uint32_t> counts) {
  while (true) {
    struct Node {
      size_t parent = 0;
    };
    using Weighed = std::pair<uint64_t, size_t>;
    std::priority_queue<Weighed, std::vector<Weighed>, std::greater<>> heap;
    std::vector<Node> nodes(counts.size() + 1);
    for (size_t i = 0; i < counts.size(); ++i) heap.emplace(counts[i], i);
    heap.emplace(0, counts.size());  // the code that stays free: never shorter than another
    while (heap.size() > 1) {
      const Weighed one = heap.top();
      heap.pop();
      const Weighed other = heap.top();
      heap.pop();
      nodes[one.second].parent = nodes[other.second].parent = nodes.size();
      heap.emplace(one.first + other.first, nodes.size());
      nodes.emplace_back();
    }
    std::vector<uint8_t> lengths;
    for (size_t i = 0; i < counts.size(); ++i) {
      uint8_t length = 0;
      for (size_t node = i; node != nodes.size() - 1; node = nodes[node].parent) ++length;
      lengths.push_back(length);
    }
    if (*std::max_element(lengths.begin(), lengths.end()) <= kLongestCode) return lengths;
    for (uint32_t& count : counts) count = count / 2 + 1;  // flatter, until nothing is too deep
  }
}

/// `count` lengths, the shortest first, by splitting leaves of a tree that begins as one.
inline std::vector<uint8_t> grown_lengths(size_t count, HuffmanShape shape, Random& random) {
  std::vector<uint8_t> leaves{0};
  while (leaves.size() <= count) {  // one more, for the code of ones alone
    const auto splits = [](uint8_t leaf) { return leaf < kLongestCode; };
    auto leaf = leaves.begin();
    if (shape == HuffmanShape::kBalanced) {
      leaf = std::min_element(leaves.begin(), leaves.end());
    } else if (shape == HuffmanShape::kChain) {
      leaf = std::max_element(leaves.begin(), leaves.end(), [&](uint8_t one, uint8_t other) {
        return std::pair(splits(one), one) < std::pair(splits(other), other);
      });
    } else {
      do {
        leaf = leaves.begin() + random.below(static_cast<uint32_t>(leaves.size()));
      } while (!splits(*leaf));
    }
    const uint8_t deeper = ++*leaf;
    leaves.push_back(deeper);
  }
  std::sort(leaves.begin(), leaves.end());
  leaves.pop_back();
  return leaves;
}

}  // namespace huffman_detail

/// A table with a code for each symbol that occurs, and for each of `unused`.
inline HuffmanTable make_table(const SymbolCounts& counts, HuffmanShape shape, HuffmanOrder order,
                               const std::vector<uint8_t>& unused, Random& random) {
  std::vector<uint8_t> symbols;
  for (size_t symbol = 0; symbol < counts.size(); ++symbol) {
    const bool extra = std::find(unused.begin(), unused.end(), symbol) != unused.end();
    if (counts[symbol] > 0 || extra) symbols.push_back(static_cast<uint8_t>(symbol));
  }
  for (size_t i = symbols.size(); i > 1; --i) {
    std::swap(symbols[i - 1], symbols[random.below(static_cast<uint32_t>(i))]);
  }
  const bool optimal = shape == HuffmanShape::kOptimal;
  if (optimal || order != HuffmanOrder::kAny) {
    const bool rare_first = !optimal && order == HuffmanOrder::kRareFirst;
    std::stable_sort(symbols.begin(), symbols.end(), [&](uint8_t one, uint8_t other) {
      return rare_first ? counts[one] < counts[other] : counts[one] > counts[other];
    });
  }
  std::vector<uint8_t> lengths;
  if (optimal) {
    std::vector<uint32_t> sorted;
    for (const uint8_t symbol : symbols) sorted.push_back(counts[symbol]);
    lengths = huffman_detail::optimal_lengths(sorted);
    std::sort(lengths.begin(), lengths.end());
  } else {
    lengths = huffman_detail::grown_lengths(symbols.size(), shape, random);
  }
  HuffmanTable table;
  for (const uint8_t length : lengths) ++table.counts[length];
  table.symbols = symbols;
  return table;
}

}  // namespace fastloader::testing
