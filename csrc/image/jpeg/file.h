#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "image/jpeg/header.h"
#include "image/jpeg/refusal.h"
#include "image/jpeg/zigzag.h"

namespace fastloader {

// What stands before a JPEG's first scan, and between the scans of a progressive one, as far as the
// decoders of our own take it. Everything points into the file, which must stay.

constexpr size_t kJpegTables = 4;  // identifiers of tables are 0 to 3
constexpr size_t kMaxOwnComponents = 3;
constexpr size_t kMaxOwnScans = 64;   // clean encoders write about ten
constexpr size_t kMaxMcuBlocks = 10;  // the format's limit
constexpr size_t kMaxCodeLength = 16;

/// A Huffman code as a file gives it.
struct HuffmanSpec {
  const uint8_t* lengths = nullptr;  ///< how many codes have 1, 2, ... 16 bits; null: no such table
  const uint8_t* symbols = nullptr;  ///< shortest code first
  size_t count = 0;                  ///< of symbols
};

struct JpegComponent {
  uint8_t identifier = 0;
  JpegSampling sampling;
  uint8_t quantization = 0;  ///< the table's identifier
  uint8_t dc = 0;            ///< that of its code for first coefficients
  uint8_t ac = 0;
  uint32_t width = 0;  ///< in samples; the blocks at the right and lower edge have more
  uint32_t height = 0;
};

/// One scan of a progressive file: some bits of the first coefficients ("DC") of one component or
/// more, or of a band of the others of one component.
struct ProgressiveScan {
  size_t components = 0;
  uint8_t component[kMaxOwnComponents] = {};  ///< which ones they are in the file, ascending
  uint8_t first = 0;                          ///< coefficient of the band, in the file's order
  uint8_t last = 0;
  uint8_t high = 0;                     ///< bits from this one up have come before; 0: none have
  uint8_t low = 0;                      ///< the lowest bit that comes now
  HuffmanSpec code[kMaxOwnComponents];  ///< of each of them
  uint32_t restart_interval = 0;        ///< in MCUs of this scan; 0: it has no restarts
  uint32_t mcus_across = 0;             ///< with one component an MCU is a block
  uint32_t mcus_down = 0;
  const uint8_t* begin = nullptr;  ///< the first entropy-coded byte
  const uint8_t* end = nullptr;    ///< the marker behind it; fill may stand before that

  bool interleaved() const { return components > 1; }
  bool refines() const { return high > 0; }
  /// Between restarts.
  uint64_t intervals() const {
    const uint64_t mcus = uint64_t{mcus_across} * mcus_down;
    return restart_interval == 0 ? 1 : (mcus + restart_interval - 1) / restart_interval;
  }
};

struct JpegFile {
  uint32_t width = 0;
  uint32_t height = 0;
  size_t components = 0;
  JpegComponent component[kMaxOwnComponents];
  JpegSampling most;  ///< the largest factors: those of the first component
  uint32_t mcus_across = 0;
  uint32_t mcus_down = 0;
  uint32_t restart_interval = 0;  ///< in MCUs; 0: the scan has no restarts
  int adobe_transform = -1;       ///< -1: no Adobe marker
  /// Row by row. Only tables that a component uses are there.
  alignas(64) uint16_t quantization[kJpegTables][kJpegBlock];
  HuffmanSpec dc[kJpegTables];
  HuffmanSpec ac[kJpegTables];
  const uint8_t* scan = nullptr;  ///< of a sequential file: the first entropy-coded byte
  const uint8_t* end = nullptr;   ///< of the file
  bool progressive = false;
  std::vector<ProgressiveScan> scans;  ///< of a progressive file
};

/// Reads the headers of a sequential file with one scan, up to that, or of a progressive file, up
/// to its end marker. Decides about colour as libjpeg does. Refuses what a clean encoder does not
/// write: libjpeg-turbo then says what is to be made of it.
JpegRefusal read_jpeg_file(const uint8_t* data, size_t size, JpegFile& file);

/// Whether an end marker stands anywhere in these bytes, which begin behind the first scan's
/// header. Without one the file was cut off, or never finished.
bool has_jpeg_end_marker(const uint8_t* data, size_t size);

}  // namespace fastloader
