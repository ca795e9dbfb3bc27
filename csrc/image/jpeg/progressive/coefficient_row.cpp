#include "image/jpeg/progressive/coefficient_row.h"

#include <algorithm>
#include <cstring>

namespace fastloader {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kAligned = kAlignment / sizeof(int16_t);  // coefficients

int16_t* aligned(int16_t* address) {
  const size_t over = reinterpret_cast<uintptr_t>(address) % kAlignment;
  return over == 0 ? address : address + (kAlignment - over) / sizeof(int16_t);
}

}  // namespace

void CoefficientRow::begin(const JpegFile& file, const JpegPlanes& planes) {
  file_ = &file;
  planes_ = &planes;
  size_t blocks = 0;
  size_t stored = 0;
  for (size_t c = 0; c < file.components; ++c) {
    const JpegSampling sampling = file.component[c].sampling;
    Part& part = part_[c];
    part.lines = sampling.vertical;
    part.in_mcu = sampling.horizontal;
    part.across = file.mcus_across * part.in_mcu;
    part.stored = (planes.end_mcu() - planes.first_mcu()) * part.in_mcu;
    part.origin = planes.first_mcu() * part.in_mcu;
    blocks += size_t{part.across} * part.lines;
    stored += size_t{part.stored} * part.lines;
  }
  if (nonzero_.size() < blocks) nonzero_.resize(blocks);
  // A picture that was given up may have left some.
  if (!clean_) std::fill(coefficients_.begin(), coefficients_.end(), int16_t{0});
  clean_ = true;
  const size_t needed = stored * kJpegBlock + kAligned;
  if (coefficients_.size() < needed) coefficients_.resize(needed);
  uint64_t* nonzero = nonzero_.data();
  int16_t* coefficients = aligned(coefficients_.data());
  for (size_t c = 0; c < file.components; ++c) {
    Part& part = part_[c];
    part.nonzero = nonzero;
    part.coefficients = coefficients;
    nonzero += size_t{part.across} * part.lines;
    coefficients += size_t{part.stored} * part.lines * kJpegBlock;
  }
}

void CoefficientRow::begin_row(uint32_t mcu_row) {
  mcu_row_ = mcu_row;
  for (size_t c = 0; c < file_->components; ++c) {
    const Part& part = part_[c];
    std::fill_n(part.nonzero, size_t{part.across} * part.lines, uint64_t{0});
  }
  clean_ = !in_region();
}

void CoefficientRow::transform(const JpegPixelKernels& kernels, JpegPlanes& planes) {
  for (size_t c = 0; c < file_->components; ++c) {
    for (uint32_t line = 0; line < part_[c].lines; ++line) {
      if (needs_line(c, line)) transform_line(kernels, planes, c, line);
    }
  }
  clear_first();
  clean_ = true;
}

/// The first coefficients of all blocks: those of flat blocks are still there, and those of blocks
/// that the region does not need, since first coefficients come for whole MCUs.
void CoefficientRow::clear_first() {
  for (size_t c = 0; c < file_->components; ++c) {
    const Part& part = part_[c];
    for (uint32_t line = 0; line < part.lines; ++line) {
      int16_t* first = block(c, part.origin, line);
      for (uint32_t x = 0; x < part.stored; ++x, first += kJpegBlock) *first = 0;
    }
  }
}

void CoefficientRow::transform_line(const JpegPixelKernels& kernels, JpegPlanes& planes,
                                    size_t component, uint32_t line) {
  constexpr size_t kAtOnce = 64;
  JpegBlock blocks[kAtOnce];
  size_t count = 0;
  const uint16_t* const quantization =
      file_->quantization[file_->component[component].quantization];
  const size_t stride = planes.stride(component);
  const uint32_t first = planes.first_column(component);
  const uint32_t end = planes.end_column(component);
  int16_t* coefficients = block(component, first, line);
  uint8_t* samples = planes.block(component, first, row_of(component, line));
  const uint64_t* const places = nonzero(component, line);
  for (uint32_t x = first; x < end; ++x, coefficients += kJpegBlock, samples += kJpegEdge) {
    if (places[x] == 0) {
      write_flat_block(coefficients[0], quantization[0], samples, stride);
      continue;
    }
    blocks[count++] = {coefficients, samples,
                       63 - static_cast<uint32_t>(__builtin_clzll(places[x]))};
    if (count == kAtOnce) {
      kernels.inverse_dct(blocks, count, quantization, stride);
      count = 0;
    }
  }
  if (count > 0) kernels.inverse_dct(blocks, count, quantization, stride);
}

}  // namespace fastloader
