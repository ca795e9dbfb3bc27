#include "image/jpeg/file.h"

#include <algorithm>
#include <cstring>

#include "image/jpeg/markers.h"
#include "image/jpeg/scan_script.h"

namespace fastloader {
namespace {

using namespace jpeg_marker;

constexpr uint32_t kMostPixelsOfAnEdge = 65500;  // libjpeg refuses more

uint32_t number(const uint8_t* at) { return static_cast<uint32_t>(at[0] << 8 | at[1]); }

bool begins_with(const uint8_t* at, size_t size, const char* text, size_t length) {
  return size >= length && std::memcmp(at, text, length) == 0;
}

uint32_t divided_up(uint32_t a, uint32_t b) { return (a + b - 1) / b; }

/// Reads segment after segment. Each read_ function gets what stands behind a segment's length.
class Reader {
 public:
  explicit Reader(JpegFile& file) : file_(file) {}

  JpegRefusal read(const uint8_t* data, size_t size);

 private:
  JpegRefusal read_segment(uint8_t marker, const uint8_t* at, size_t size);
  JpegRefusal read_quantization(const uint8_t* at, size_t size);
  JpegRefusal read_huffman_tables(const uint8_t* at, size_t size);
  JpegRefusal read_frame(const uint8_t* at, size_t size);
  JpegRefusal read_scan(const uint8_t* at, size_t size);
  JpegRefusal read_progressive_scan(const uint8_t* at, size_t size);
  JpegRefusal choose_code(ProgressiveScan& scan, size_t i, uint8_t tables) const;
  JpegRefusal pass_entropy_coded(const uint8_t*& at);
  void read_application(uint8_t marker, const uint8_t* at, size_t size);
  JpegRefusal measure();
  bool is_ycc() const;

  JpegFile& file_;
  bool has_quantization_[kJpegTables] = {};
  bool has_jfif_ = false;
  ScanScript script_;
};

JpegRefusal Reader::read(const uint8_t* data, size_t size) {
  if (size < 2 || data[0] != 0xff || data[1] != 0xd8) return JpegRefusal::kDamage;
  const uint8_t* at = data + 2;
  const uint8_t* const end = data + size;
  file_.end = end;
  for (;;) {
    if (at == end || *at != 0xff) return JpegRefusal::kDamage;
    at = behind_fill(at, end);
    if (at == end) return JpegRefusal::kDamage;
    const uint8_t marker = *at++;
    if (marker == kEndOfImage && !file_.scans.empty()) {
      return script_.complete(file_.components) ? JpegRefusal::kNone : JpegRefusal::kScans;
    }
    if (end - at < 2) return JpegRefusal::kDamage;
    const size_t length = number(at);
    if (length < 2 || length > static_cast<size_t>(end - at)) return JpegRefusal::kDamage;
    const uint8_t* const segment = at + 2;
    at += length;
    JpegRefusal refusal;
    if (marker != kScan) {
      refusal = read_segment(marker, segment, length - 2);
    } else if (file_.progressive) {
      refusal = read_progressive_scan(segment, length - 2);
      if (refusal == JpegRefusal::kNone) refusal = pass_entropy_coded(at);
    } else {
      file_.scan = at;
      return read_scan(segment, length - 2);
    }
    if (refusal != JpegRefusal::kNone) return refusal;
  }
}

JpegRefusal Reader::read_segment(uint8_t marker, const uint8_t* at, size_t size) {
  switch (marker) {
    case kQuantization:
      if (!file_.scans.empty()) return JpegRefusal::kDamage;
      return read_quantization(at, size);
    case kHuffmanTables:
      return read_huffman_tables(at, size);
    case kRestartInterval:
      if (size != 2) return JpegRefusal::kDamage;
      file_.restart_interval = number(at);
      return JpegRefusal::kNone;
    case kBaseline:
    case kExtended:
    case kProgressive:
      file_.progressive = marker == kProgressive;
      return read_frame(at, size);
    case kComment:
      return JpegRefusal::kNone;
    default:
      break;
  }
  if (marker > kProgressive && marker <= kLastFrame) return JpegRefusal::kKind;
  if (marker < kFirstApplication || marker > kLastApplication) return JpegRefusal::kDamage;
  // Behind the first scan libjpeg has decided about colour.
  if (file_.scans.empty()) read_application(marker, at, size);
  return JpegRefusal::kNone;
}

void Reader::read_application(uint8_t marker, const uint8_t* at, size_t size) {
  constexpr size_t kJfifSize = 14;
  constexpr size_t kAdobeSize = 12;
  if (marker == kFirstApplication && size >= kJfifSize && begins_with(at, size, "JFIF", 5)) {
    has_jfif_ = true;
  }
  if (marker == kAdobe && size >= kAdobeSize && begins_with(at, size, "Adobe", 5)) {
    file_.adobe_transform = at[11];
  }
}

JpegRefusal Reader::read_quantization(const uint8_t* at, size_t size) {
  while (size > 0) {
    const size_t factor_size = (at[0] >> 4) + size_t{1};
    const size_t table = at[0] & 15;
    const size_t needed = 1 + kJpegBlock * factor_size;
    if (factor_size > 2 || table >= kJpegTables || size < needed) return JpegRefusal::kDamage;
    for (size_t i = 0; i < kJpegBlock; ++i) {
      const uint8_t* factor = at + 1 + i * factor_size;
      file_.quantization[table][kZigzag[i]] =
          static_cast<uint16_t>(factor_size == 1 ? *factor : number(factor));
    }
    has_quantization_[table] = true;
    at += needed;
    size -= needed;
  }
  return JpegRefusal::kNone;
}

JpegRefusal Reader::read_huffman_tables(const uint8_t* at, size_t size) {
  constexpr size_t kHead = 1 + kMaxCodeLength;
  while (size > 0) {
    if (size < kHead || (at[0] & 15) >= kJpegTables || at[0] >> 4 > 1) return JpegRefusal::kDamage;
    HuffmanSpec spec;
    spec.lengths = at + 1;
    spec.symbols = at + kHead;
    for (size_t i = 0; i < kMaxCodeLength; ++i) spec.count += spec.lengths[i];
    if (spec.count > 256 || size < kHead + spec.count) return JpegRefusal::kDamage;
    (at[0] >> 4 == 0 ? file_.dc : file_.ac)[at[0] & 15] = spec;
    at += kHead + spec.count;
    size -= kHead + spec.count;
  }
  return JpegRefusal::kNone;
}

JpegRefusal Reader::read_frame(const uint8_t* at, size_t size) {
  constexpr size_t kHead = 6;
  constexpr size_t kEach = 3;
  if (file_.components != 0 || size < kHead) return JpegRefusal::kDamage;
  if (at[0] != 8) return JpegRefusal::kKind;
  const size_t components = at[5];
  if (components != 1 && components != 3) return JpegRefusal::kLayout;
  if (size != kHead + kEach * components) return JpegRefusal::kDamage;
  file_.height = number(at + 1);
  file_.width = number(at + 3);
  if (std::min(file_.width, file_.height) == 0 ||
      std::max(file_.width, file_.height) > kMostPixelsOfAnEdge) {
    return JpegRefusal::kDamage;
  }
  for (size_t c = 0; c < components; ++c) {
    const uint8_t* given = at + kHead + kEach * c;
    JpegComponent& component = file_.component[c];
    component.identifier = given[0];
    component.sampling = {static_cast<uint8_t>(given[1] >> 4), static_cast<uint8_t>(given[1] & 15)};
    component.quantization = given[2];
    if (component.quantization >= kJpegTables) return JpegRefusal::kDamage;
    for (size_t other = 0; other < c; ++other) {
      if (file_.component[other].identifier == given[0]) return JpegRefusal::kDamage;
    }
  }
  file_.components = components;
  return measure();
}

/// Sizes in MCUs and samples. A single component is not interleaved: its factors mean nothing.
JpegRefusal Reader::measure() {
  if (file_.components == 1) {
    const JpegSampling given = file_.component[0].sampling;
    if (std::min(given.horizontal, given.vertical) < 1 ||
        std::max(given.horizontal, given.vertical) > 4) {
      return JpegRefusal::kDamage;
    }
    file_.component[0].sampling = {1, 1};
  }
  file_.most = file_.component[0].sampling;
  size_t blocks = 0;
  for (size_t c = 0; c < file_.components; ++c) {
    JpegComponent& component = file_.component[c];
    const uint32_t across = component.sampling.horizontal;
    const uint32_t down = component.sampling.vertical;
    const bool known = across >= 1 && across <= 2 && down >= 1 && down <= 2;
    if (!known || across > file_.most.horizontal || down > file_.most.vertical) {
      return JpegRefusal::kLayout;
    }
    component.width = divided_up(file_.width * across, file_.most.horizontal);
    component.height = divided_up(file_.height * down, file_.most.vertical);
    blocks += across * down;
  }
  if (blocks > kMaxMcuBlocks) return JpegRefusal::kLayout;
  file_.mcus_across =
      divided_up(file_.width, static_cast<uint32_t>(kJpegEdge * file_.most.horizontal));
  file_.mcus_down =
      divided_up(file_.height, static_cast<uint32_t>(kJpegEdge * file_.most.vertical));
  return JpegRefusal::kNone;
}

JpegRefusal Reader::read_scan(const uint8_t* at, size_t size) {
  const size_t components = file_.components;
  if (components == 0 || size == 0) return JpegRefusal::kDamage;
  if (at[0] != components) return JpegRefusal::kScans;
  if (size != 4 + 2 * components) return JpegRefusal::kDamage;
  for (size_t c = 0; c < components; ++c) {
    const uint8_t identifier = at[1 + 2 * c];
    const uint8_t tables = at[2 + 2 * c];
    if (identifier != file_.component[c].identifier) return JpegRefusal::kScans;
    if (tables >> 4 >= kJpegTables || (tables & 15) >= kJpegTables) return JpegRefusal::kDamage;
    JpegComponent& component = file_.component[c];
    component.dc = tables >> 4;
    component.ac = tables & 15;
    const bool complete = file_.dc[component.dc].lengths != nullptr &&
                          file_.ac[component.ac].lengths != nullptr &&
                          has_quantization_[component.quantization];
    if (!complete) return JpegRefusal::kDamage;
  }
  constexpr uint8_t kWholeBlocks[3] = {0, kJpegBlock - 1, 0};
  if (std::memcmp(at + 1 + 2 * components, kWholeBlocks, sizeof kWholeBlocks) != 0) {
    return JpegRefusal::kDamage;
  }
  // An interval that the scan does not exceed has no marker, and is as good as none.
  const uint64_t mcus = uint64_t{file_.mcus_across} * file_.mcus_down;
  if (file_.restart_interval >= mcus) file_.restart_interval = 0;
  return components == 3 && !is_ycc() ? JpegRefusal::kColour : JpegRefusal::kNone;
}

JpegRefusal Reader::read_progressive_scan(const uint8_t* at, size_t size) {
  if (file_.components == 0 || size == 0) return JpegRefusal::kDamage;
  ProgressiveScan scan;
  scan.components = at[0];
  if (scan.components == 0 || scan.components > file_.components) return JpegRefusal::kScans;
  if (size != 4 + 2 * scan.components) return JpegRefusal::kDamage;
  const uint8_t* const band = at + 1 + 2 * scan.components;
  scan.first = band[0];
  scan.last = band[1];
  scan.high = band[2] >> 4;
  scan.low = band[2] & 15;
  size_t c = 0;
  for (size_t i = 0; i < scan.components; ++i, ++c) {
    while (c < file_.components && file_.component[c].identifier != at[1 + 2 * i]) ++c;
    if (c == file_.components) return JpegRefusal::kScans;
    scan.component[i] = static_cast<uint8_t>(c);
    const JpegRefusal refusal = choose_code(scan, i, at[2 + 2 * i]);
    if (refusal != JpegRefusal::kNone) return refusal;
  }
  if (file_.scans.size() == kMaxOwnScans || !script_.add(scan)) return JpegRefusal::kScans;
  if (file_.scans.empty() && file_.components == 3 && !is_ycc()) return JpegRefusal::kColour;
  const JpegComponent& alone = file_.component[scan.component[0]];
  constexpr auto kEdge = static_cast<uint32_t>(kJpegEdge);
  scan.mcus_across = scan.interleaved() ? file_.mcus_across : divided_up(alone.width, kEdge);
  scan.mcus_down = scan.interleaved() ? file_.mcus_down : divided_up(alone.height, kEdge);
  scan.restart_interval = file_.restart_interval;
  file_.scans.push_back(scan);
  return JpegRefusal::kNone;
}

/// Sets the code of the scan's i-th component. `tables` are the identifiers that the scan names.
JpegRefusal Reader::choose_code(ProgressiveScan& scan, size_t i, uint8_t tables) const {
  const size_t dc = tables >> 4;
  const size_t ac = tables & 15;
  if (dc >= kJpegTables || ac >= kJpegTables) return JpegRefusal::kDamage;
  if (!has_quantization_[file_.component[scan.component[i]].quantization]) {
    return JpegRefusal::kDamage;
  }
  if (scan.first == 0 && scan.refines()) return JpegRefusal::kNone;  // bits that have no code
  scan.code[i] = scan.first == 0 ? file_.dc[dc] : file_.ac[ac];
  return scan.code[i].lengths == nullptr ? JpegRefusal::kDamage : JpegRefusal::kNone;
}

/// Goes to the marker behind the last scan. All restarts must be there, in their order.
JpegRefusal Reader::pass_entropy_coded(const uint8_t*& at) {
  ProgressiveScan& scan = file_.scans.back();
  scan.begin = at;
  for (uint64_t interval = 0;; ++interval) {
    const uint8_t* const marker = find_next(at, file_.end);
    if (marker == nullptr) return JpegRefusal::kEnd;
    if (interval + 1 == scan.intervals()) {
      scan.end = at = marker - 1;
      return JpegRefusal::kNone;
    }
    if (*marker != restart_behind(interval)) return JpegRefusal::kDamage;
    at = marker + 1;
  }
}

/// libjpeg's rules, in default_decompress_parms().
bool Reader::is_ycc() const {
  if (has_jfif_) return true;
  if (file_.adobe_transform >= 0) return file_.adobe_transform != 0;
  const JpegComponent* component = file_.component;
  return !(component[0].identifier == 'R' && component[1].identifier == 'G' &&
           component[2].identifier == 'B');
}

}  // namespace

JpegRefusal read_jpeg_file(const uint8_t* data, size_t size, JpegFile& file) {
  file.components = 0;
  file.progressive = false;
  file.scans.clear();
  file.restart_interval = 0;
  file.adobe_transform = -1;
  for (size_t table = 0; table < kJpegTables; ++table) file.dc[table] = file.ac[table] = {};
  return Reader(file).read(data, size);
}

bool has_jpeg_end_marker(const uint8_t* data, size_t size) {
  for (size_t end = size; end >= 2; --end) {
    if (data[end - 1] == kEndOfImage && data[end - 2] == 0xff) return true;
  }
  return false;
}

}  // namespace fastloader
