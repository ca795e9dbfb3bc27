#include "image/webp/decoder.h"

#include <webp/decode.h>
#include <webp/demux.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <new>

#include "base/error.h"

namespace fastloader {
namespace {

constexpr size_t kRgb = 3;

/// Pixels that are decoded between two looks at `stop`: some hundredths of a second.
constexpr uint64_t kPiece = uint64_t{1} << 22;

/// libwebp makes the colour at the edges of a crop from less than in the whole picture.
constexpr uint32_t kAround = 2;

struct DeleteDemuxer {
  void operator()(WebPDemuxer* demuxer) const { WebPDemuxDelete(demuxer); }
};

struct DeleteDecoder {
  void operator()(WebPIDecoder* decoder) const { WebPIDelete(decoder); }
};

/// Frames hold no memory of their own when they are the first one.
struct Frame {
  WebPIterator found{};
  ~Frame() { WebPDemuxReleaseIterator(&found); }
};

/// The part that is decoded for a region: with what lies around it, and from an even pixel on, as
/// libwebp wants it.
PictureRegion widened(const PictureRegion& region, const PictureSize& size, bool to_the_end) {
  const auto before = [](uint32_t edge) { return edge < kAround ? 0 : (edge - kAround) & ~1u; };
  const uint32_t left = before(region.left);
  const uint32_t top = before(region.top);
  const uint32_t right = std::min(region.left + region.width + kAround, size.width);
  const uint32_t bottom =
      to_the_end ? size.height : std::min(region.top + region.height + kAround, size.height);
  return {left, top, right - left, bottom - top};
}

}  // namespace

bool WebpDecoder::available() { return true; }

bool WebpDecoder::begins_as_webp(const uint8_t* begin, size_t size) {
  if (size < 16 || std::memcmp(begin, "RIFF", 4) != 0) return false;
  constexpr std::array<const char*, 3> kKinds{"WEBPVP8 ", "WEBPVP8L", "WEBPVP8X"};
  return std::any_of(kKinds.begin(), kKinds.end(),
                     [&](const char* kind) { return std::memcmp(begin + 8, kind, 8) == 0; });
}

PictureSize WebpDecoder::open(const uint8_t* data, size_t size, const PictureOptions& options) {
  opened_ = false;
  rows_left_ = 0;
  options_ = options;
  if (!begins_as_webp(data, size)) throw DecodeError("the file does not begin as a WebP does");
  const WebPData file{data, size};
  // As Pillow's decoder: it refuses what is incomplete, or wrong in its order, and headers of a
  // wrong size, which the demuxer passes over.
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(data, size, &features) != VP8_STATUS_OK) {
    throw DecodeError("broken WebP file");
  }
  const std::unique_ptr<WebPDemuxer, DeleteDemuxer> demuxer(WebPDemux(&file));
  if (demuxer == nullptr) throw DecodeError("broken or truncated WebP file");
  size_ = {WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_WIDTH),
           WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_HEIGHT)};
  refuse_above(options.pixel_limit, size_.width, size_.height);
  Frame frame;
  if (WebPDemuxGetFrame(demuxer.get(), 1, &frame.found) == 0) {
    throw DecodeError("WebP file without a frame");
  }
  const WebPIterator& found = frame.found;
  if (found.x_offset != 0 || found.y_offset != 0 ||
      static_cast<uint32_t>(found.width) != size_.width ||
      static_cast<uint32_t>(found.height) != size_.height || found.complete == 0) {
    throw UnsupportedImage("WebP whose first frame is not the whole picture: Pillow decides");
  }
  frame_ = found.fragment.bytes;
  frame_bytes_ = found.fragment.size;
  opened_ = true;
  return size_;
}

void WebpDecoder::begin(const PictureRegion& region) {
  if (!opened_) throw InvalidArgument("WebpDecoder::begin() without open()");
  check_region(region, size_.width, size_.height);
  opened_ = false;
  const PictureRegion part = widened(region, size_, options_.check_below);
  row_bytes_ = part.width * kRgb;
  pixels_.resize(std::max(pixels_.size(), part.height * row_bytes_));

  WebPDecoderConfig config;
  if (WebPInitDecoderConfig(&config) == 0) {
    throw UnsupportedImage("the libwebp that is loaded is not the one compiled against");
  }
  config.options.use_cropping = part.width != size_.width || part.height != size_.height ? 1 : 0;
  config.options.crop_left = static_cast<int>(part.left);
  config.options.crop_top = static_cast<int>(part.top);
  config.options.crop_width = static_cast<int>(part.width);
  config.options.crop_height = static_cast<int>(part.height);
  config.output.colorspace = MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA.rgba = pixels_.data();
  config.output.u.RGBA.stride = static_cast<int>(row_bytes_);
  config.output.u.RGBA.size = part.height * row_bytes_;
  const std::unique_ptr<WebPIDecoder, DeleteDecoder> decoder(WebPIDecode(nullptr, 0, &config));
  if (decoder == nullptr) throw std::bad_alloc();

  const uint64_t pieces = 1 + uint64_t{size_.width} * size_.height / kPiece;
  VP8StatusCode status = VP8_STATUS_SUSPENDED;
  for (uint64_t piece = 1; piece <= pieces && status == VP8_STATUS_SUSPENDED; ++piece) {
    check_wanted(options_.stop);
    status = WebPIUpdate(decoder.get(), frame_, frame_bytes_ * piece / pieces);
  }
  if (status == VP8_STATUS_OUT_OF_MEMORY) throw std::bad_alloc();
  if (status != VP8_STATUS_OK) throw DecodeError("broken WebP file");
  next_ = pixels_.data() + (region.top - part.top) * row_bytes_ + (region.left - part.left) * kRgb;
  rows_left_ = region.height;
}

const uint8_t* WebpDecoder::read_row() {
  if (rows_left_ == 0) {
    throw InvalidArgument("WebpDecoder::read_row() without a row left in the region");
  }
  --rows_left_;
  const uint8_t* row = next_;
  next_ += row_bytes_;
  return row;
}

}  // namespace fastloader
