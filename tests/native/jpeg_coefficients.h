#pragma once

#include <array>
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>  // jpeglib.h uses FILE and size_t without including them
#include <string>
#include <vector>

#include <jpeglib.h>

#include "image/jpeg/libjpeg/layouts.h"
#include "image/jpeg/zigzag.h"

// What an encoder has of a picture before it writes it, and a decoder after it has read it.

namespace fastloader::testing {

/// In the order of the file (zigzag).
using JpegCoefficientBlock = std::array<int16_t, kJpegBlock>;
using JpegQuantization = std::array<uint16_t, kJpegBlock>;

struct JpegPlane {
  JpegSampling sampling;
  uint32_t across = 0;  ///< blocks that have a part in the picture
  uint32_t down = 0;
  uint32_t stride = 0;  ///< with those that fill the last MCUs
  uint32_t rows = 0;
  JpegQuantization quantization = {};
  std::vector<JpegCoefficientBlock> blocks;  ///< stride times rows

  JpegCoefficientBlock& at(uint32_t x, uint32_t y) { return blocks[size_t{y} * stride + x]; }
  const JpegCoefficientBlock& at(uint32_t x, uint32_t y) const {
    return blocks[size_t{y} * stride + x];
  }
};

struct JpegCoefficients {
  uint32_t width = 0;
  uint32_t height = 0;
  uint32_t mcus_across = 0;
  uint32_t mcus_down = 0;
  std::vector<JpegPlane> planes;
  long warnings = 0;  ///< of libjpeg while it read them

  /// The first difference in what the picture shows, or "".
  std::string difference(const JpegCoefficients& other) const {
    if (width != other.width || height != other.height) return "another size";
    if (planes.size() != other.planes.size()) return "another number of components";
    for (size_t p = 0; p < planes.size(); ++p) {
      const JpegPlane& mine = planes[p];
      const std::string where = "component " + std::to_string(p);
      if (mine.quantization != other.planes[p].quantization) {
        return where + ": another quantisation";
      }
      for (uint32_t y = 0; y < mine.down; ++y) {
        for (uint32_t x = 0; x < mine.across; ++x) {
          if (mine.at(x, y) == other.planes[p].at(x, y)) continue;
          return where + ": another block at (" + std::to_string(x) + ", " + std::to_string(y) +
                 ")";
        }
      }
    }
    return "";
  }
};

namespace coefficients_detail {

// Plain data, since libjpeg jumps over it.
struct Reader {
  jpeg_decompress_struct info;
  jpeg_error_mgr errors;
  std::jmp_buf escape;
  jvirt_barray_ptr* arrays;
  const uint8_t* data;
  size_t size;
};

inline bool run(Reader& reader, void (*step)(Reader& reader)) {
  if (setjmp(reader.escape) != 0) return false;
  step(reader);
  return true;
}

inline void read(Reader& reader) {
  jpeg_create_decompress(&reader.info);
  jpeg_mem_src(&reader.info, reader.data, static_cast<unsigned long>(reader.size));
  jpeg_read_header(&reader.info, TRUE);
  reader.arrays = jpeg_read_coefficients(&reader.info);
}

inline JpegPlane plane_of(Reader& reader, int component) {
  const jpeg_component_info& info = reader.info.comp_info[component];
  const auto horizontal = static_cast<uint32_t>(info.h_samp_factor);
  const auto vertical = static_cast<uint32_t>(info.v_samp_factor);
  JpegPlane plane;
  plane.sampling = {static_cast<uint8_t>(horizontal), static_cast<uint8_t>(vertical)};
  plane.across = info.width_in_blocks;
  plane.down = info.height_in_blocks;
  plane.stride = (plane.across + horizontal - 1) / horizontal * horizontal;
  plane.rows = (plane.down + vertical - 1) / vertical * vertical;
  plane.blocks.resize(size_t{plane.stride} * plane.rows);
  for (size_t k = 0; k < kJpegBlock; ++k) {
    plane.quantization[k] = info.quant_table->quantval[kZigzag[k]];
  }
  for (uint32_t y = 0; y < plane.rows; ++y) {
    // Fails in no state like this: the array is in memory.
    const JBLOCKARRAY row = reader.info.mem->access_virt_barray(
        reinterpret_cast<j_common_ptr>(&reader.info), reader.arrays[component], y, 1, FALSE);
    for (uint32_t x = 0; x < plane.stride; ++x) {
      for (size_t k = 0; k < kJpegBlock; ++k) plane.at(x, y)[k] = row[0][x][kZigzag[k]];
    }
  }
  return plane;
}

}  // namespace coefficients_detail

/// As libjpeg reads them; no planes if it fails.
inline JpegCoefficients read_coefficients(const std::vector<uint8_t>& jpeg) {
  using coefficients_detail::Reader;
  JpegCoefficients found;
  std::vector<Reader> readers(1);  // of zeros, and not on the stack that libjpeg jumps over
  Reader& reader = readers[0];
  reader.data = jpeg.data();
  reader.size = jpeg.size();
  reader.info.err = jpeg_std_error(&reader.errors);
  reader.info.client_data = &reader;
  reader.errors.error_exit = [](j_common_ptr info) {
    std::longjmp(static_cast<Reader*>(info->client_data)->escape, 1);
  };
  reader.errors.emit_message = [](j_common_ptr info, int level) {
    if (level < 0) ++info->err->num_warnings;
  };
  if (coefficients_detail::run(reader, coefficients_detail::read)) {
    const jpeg_decompress_struct& info = reader.info;
    found.width = info.image_width;
    found.height = info.image_height;
    const auto mcus = [](uint32_t edge, int factor) {
      const uint32_t mcu = static_cast<uint32_t>(kJpegEdge) * static_cast<uint32_t>(factor);
      return (edge + mcu - 1) / mcu;
    };
    found.mcus_across = mcus(found.width, info.max_h_samp_factor);
    found.mcus_down = mcus(found.height, info.max_v_samp_factor);
    for (int c = 0; c < info.num_components; ++c) {
      found.planes.push_back(coefficients_detail::plane_of(reader, c));
    }
  }
  found.warnings = reader.errors.num_warnings;
  jpeg_destroy_decompress(&reader.info);
  return found;
}

}  // namespace fastloader::testing
