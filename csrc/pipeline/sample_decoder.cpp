#include "pipeline/sample_decoder.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/error.h"
#include "base/trace.h"
#include "image/resize/split_rgb.h"

namespace fastloader {
namespace {

constexpr size_t kRgb = 3;
constexpr size_t kTableLength = 256;  // of ImageJob::table, for one channel
/// One picture in so many has its rows timed; see StageTimes.
constexpr uint64_t kLookedAt = 16;

/// The input of the resize: a part of the decoded pixels, and the box in it that is stretched if
/// that is not all of it.
struct ResizeInput {
  CropBox part;
  std::optional<ResizeBox> box;
};

void fill_row(const std::array<uint8_t, kRgb>& colour, uint8_t* row, size_t width) {
  for (size_t x = 0; x < width; ++x) std::memcpy(row + x * kRgb, colour.data(), kRgb);
}

/// The largest reduction by the decoder that leaves the resize nothing to enlarge.
int denominator_for(const SampleGeometry& geometry) {
  for (const int denominator : {8, 4, 2}) {
    const auto times = static_cast<size_t>(denominator);
    if (geometry.box.width >= times * geometry.scaled.width &&
        geometry.box.height >= times * geometry.scaled.height) {
      return denominator;
    }
  }
  return 1;
}

/// The box in pixels of a picture that was decoded at 1/`denominator`: its edges may lie within
/// one, and rounding them would shift the picture. As with a crop, the pixels that it does not
/// touch don't count.
ResizeInput reduced(const CropBox& box, int denominator) {
  if (denominator == 1) return {box, std::nullopt};
  const auto by = static_cast<size_t>(denominator);
  const size_t left = box.left / by;
  const size_t top = box.top / by;
  const size_t right = (box.left + box.width + by - 1) / by;
  const size_t bottom = (box.top + box.height + by - 1) / by;
  // Exact: eighths of less than 2^21.
  const auto within = [&](size_t edge, size_t origin) {
    return static_cast<float>(edge - origin * by) / static_cast<float>(by);
  };
  return {CropBox{left, top, right - left, bottom - top},
          ResizeBox{within(box.left, left), within(box.top, top),
                    within(box.left + box.width, left), within(box.top + box.height, top)}};
}

/// Makes room without ever giving it back: clearing what a smaller picture left costs as much as
/// writing it.
uint8_t* at_least(std::vector<uint8_t>& memory, size_t bytes) {
  if (memory.size() < bytes) memory.resize(bytes);
  return memory.data();
}

/// The most bytes that a thread keeps for a file. The system's allocator maps larger blocks by
/// themselves and gives them back to the system; a new one costs little beside such a file.
constexpr size_t kKeptFile = size_t{32} << 20;

/// The same for the pictures that a recipe works on, and for one of which several views are made.
constexpr size_t kKeptCanvas = size_t{64} << 20;
constexpr size_t kKeptShared = size_t{16} << 20;

/// What it costs to decode a part of a picture, as a share of all of it. The entropy decoder passes
/// every row above the part's lower edge. The other half of the work is on the part itself.
double decoding_cost(const CropBox& part, const ImageSize& size) {
  const auto height = static_cast<double>(size.height);
  const double passed = static_cast<double>(part.top + part.height) / height;
  const double made = static_cast<double>(part.height) / height * static_cast<double>(part.width) /
                      static_cast<double>(size.width);
  return (passed + made) / 2;
}

/// The smallest box around two.
CropBox around(const CropBox& one, const CropBox& other) {
  const size_t left = std::min(one.left, other.left);
  const size_t top = std::min(one.top, other.top);
  return {left, top, std::max(one.left + one.width, other.left + other.width) - left,
          std::max(one.top + one.height, other.top + other.height) - top};
}

CropBox whole(const ImageSize& size) { return {0, 0, size.width, size.height}; }

PictureRegion region_of(const CropBox& box) {
  return {static_cast<uint32_t>(box.left), static_cast<uint32_t>(box.top),
          static_cast<uint32_t>(box.width), static_cast<uint32_t>(box.height)};
}

/// Throws InvalidArgument for a picture that has not the size of all.
void check_made(const ImageJob& job, const ImageSize& made) {
  if (job.output == ImageJob::Output::kAnySize || job.own_sizes) return;
  const ImageSize wanted = job.made_size();
  if (made == wanted) return;
  throw InvalidArgument("the transform makes a picture of " + std::to_string(made.width) + "x" +
                        std::to_string(made.height) + " pixels of this one, where all are to be " +
                        std::to_string(wanted.width) + "x" + std::to_string(wanted.height));
}

/// Whether its pixels are fetched from their places, which no resize of the Resizer does.
bool moves_only(const ImageJob& job) { return job.following && job.following->nearest(); }

/// Writes one of three equal channels. `out` may be `rgb`.
void take_grey(const uint8_t* rgb, size_t pixels, uint8_t* out) {
  for (size_t i = 0; i < pixels; ++i) out[i] = rgb[i * kRgb];
}

/// Writes the indices of a mask, or the class of each.
template <class Index>
void take_indices(const ImageJob& job, const uint8_t* rgb, size_t pixels, Index* out) {
  const uint16_t* classes = job.classes == nullptr ? nullptr : job.classes->data();
  for (size_t i = 0; i < pixels; ++i, rgb += kRgb) {
    const unsigned index = rgb[0] | static_cast<unsigned>(rgb[1]) << 8;
    if (index > std::numeric_limits<Index>::max()) {
      throw InvalidArgument("a mask with the index " + std::to_string(index) +
                            " has more than 8 bits: give EncodedMask(..., bits=16)");
    }
    out[i] = static_cast<Index>(classes == nullptr ? index : classes[index]);
  }
}

/// Writes what the table has for the bytes of each channel.
void look_up(const ImageJob& job, const uint8_t* rgb, size_t pixels, float* out) {
  const bool planar = job.table_layout == Layout::kNchw;
  if (planar && job.channels == kRgb) {
    // A quarter faster than plane after plane: each pixel is read once.
    const float* red = job.table.data();
    for (size_t i = 0; i < pixels; ++i, rgb += kRgb) {
      out[i] = red[rgb[0]];
      out[pixels + i] = red[kTableLength + rgb[1]];
      out[2 * pixels + i] = red[2 * kTableLength + rgb[2]];
    }
    return;
  }
  const size_t step = planar ? 1 : job.channels;  // between two pixels
  for (size_t c = 0; c < job.channels; ++c) {
    const float* table = job.table.data() + c * kTableLength;
    float* to = out + c * (planar ? pixels : 1);
    for (size_t i = 0; i < pixels; ++i) to[i * step] = table[rgb[i * kRgb + c]];
  }
}

}  // namespace

std::string words_of_large(uint64_t pixels, uint64_t limit) {
  return "Image size (" + std::to_string(pixels) + " pixels) exceeds limit of " +
         std::to_string(limit) + " pixels, could be decompression bomb DOS attack.";
}

CropBox SampleDecoder::begin(const ImageJob& job, const SampleGeometry& geometry, int denominator,
                             void* out) {
  const ImageSize size = geometry.made();
  const size_t row_bytes = size.width * kRgb;
  if (job.recipe == nullptr) check_made(job, size);
  if (job.recipe != nullptr || job.output == ImageJob::Output::kAnySize) {
    finished_ = canvas_.begin(size);
  } else if (job.output == ImageJob::Output::kNhwcBytes && job.channels == kRgb && !job.own_sizes) {
    finished_ = static_cast<uint8_t*>(out);
  } else {
    finished_ = at_least(pixels_, size.height * row_bytes);
  }
  made_ = size;
  const ResizeInput input = reduced(geometry.box, denominator);
  const CenterCrop& window = geometry.window;
  ResizeSpec spec;
  spec.in_width = input.part.width;
  spec.in_height = input.part.height;
  spec.out_width = geometry.scaled.width;
  spec.out_height = geometry.scaled.height;
  spec.filter = geometry.filter;
  spec.order = job.transform.order;
  spec.horizontal_flip = geometry.horizontal_flip;
  spec.vertical_flip = geometry.vertical_flip;
  spec.box = input.box;
  spec.window = window.box;
  if (window.padded()) fill_row(job.transform.fill, finished_, size.height * size.width);
  const size_t left = geometry.horizontal_flip ? window.pad_right : window.pad_left;
  const size_t top = geometry.vertical_flip ? window.pad_bottom : window.pad_top;
  resizer_.begin(spec, finished_ + top * row_bytes + left * kRgb, row_bytes);
  CropBox needed = resizer_.needed();
  needed.left += input.part.left;
  needed.top += input.part.top;
  return needed;
}

void SampleDecoder::apply_recipe(const SampleKey& key, const PictureView& view,
                                 const std::atomic<bool>* stop) {
  const ImageJob& job = *view.job;
  if (job.recipe == nullptr) return;
  canvas_.set_resize_order(job.transform.order);
  for (const Operation& operation :
       draw_operations(job, canvas_.size(), key.seed, key.sample, view.number)) {
    apply(operation, canvas_, stop);
  }
  check_made(job, canvas_.size());
  made_ = canvas_.size();
  finished_ = canvas_.pixels();
}

template <class NextRow>
void SampleDecoder::move_pixels(const PictureView& view, const SampleGeometry& geometry,
                                const NextRow& next_row, const std::atomic<bool>* stop) {
  const ImageJob& job = *view.job;
  const ImageSize used{geometry.box.height, geometry.box.width};
  uint8_t* pixels = canvas_.begin(used);
  const size_t row_bytes = canvas_.row_bytes();
  for (size_t y = 0; y < used.height; ++y)
    std::memcpy(pixels + y * row_bytes, next_row(), row_bytes);
  for (const Operation& operation : as_operations(job, geometry)) {
    validate(operation);
    apply(operation, canvas_, stop);
  }
  if (job.recipe == nullptr) check_made(job, canvas_.size());
  made_ = canvas_.size();
  finished_ = canvas_.pixels();
}

void SampleDecoder::finish(const PictureView& view) {
  const ImageJob& job = *view.job;
  if (job.output == ImageJob::Output::kAnySize) return;  // it stays on the canvas
  void* out = view.out;
  const size_t bytes = job.bytes_of(made_);
  if (job.own_sizes) {
    if (view.own == nullptr || view.allocate == nullptr) {
      throw InvalidArgument("a picture of its own size needs memory of its own");
    }
    *view.own = OwnPicture{made_, (*view.allocate)(bytes)};
    out = view.own->memory.get();
  }
  const size_t pixels = made_.height * made_.width;
  if (job.output == ImageJob::Output::kLookedUp) {
    return look_up(job, finished_, pixels, static_cast<float*>(out));
  }
  if (job.output == ImageJob::Output::kIndices8) {
    return take_indices(job, finished_, pixels, static_cast<uint8_t*>(out));
  }
  if (job.output == ImageJob::Output::kIndices16) {
    return take_indices(job, finished_, pixels, static_cast<uint16_t*>(out));
  }
  const bool normalized = job.output == ImageJob::Output::kNormalized;
  if (job.channels == 1) {
    take_grey(finished_, pixels, normalized ? finished_ : static_cast<uint8_t*>(out));
    if (!normalized) return;
  }
  if (normalized) {
    NormalizeSpec spec = job.normalize;
    spec.height = made_.height;
    spec.width = made_.width;
    return normalize(spec, finished_, out);
  }
  if (job.output == ImageJob::Output::kNchwBytes) {
    return split_rgb(finished_, pixels, static_cast<uint8_t*>(out));
  }
  if (finished_ != out) std::memcpy(out, finished_, bytes);
}

void SampleDecoder::give_back() {
  const auto bound = [](std::vector<uint8_t>& memory, size_t most) {
    if (memory.capacity() > most) std::vector<uint8_t>().swap(memory);
  };
  bound(file_, kKeptFile);
  bound(index_, kKeptShared);
  bound(shared_, kKeptShared);
  bound(turned_, kKeptShared);
  bound(pixels_, kKeptCanvas);
  if (canvas_.scratch_bytes() > kKeptCanvas) canvas_ = Canvas();
  if (resizer_.scratch_bytes() > kKeptShared) resizer_ = Resizer();
  picture_.give_back();
}

SampleBytes SampleDecoder::fetch(const ImageJob& job, uint64_t index, const FileAhead& ahead) {
  index_.clear();
  if (const std::optional<SampleBytes> file = job.source->view(index)) return *file;
  std::optional<bool> waited;
  if (ahead.batch != nullptr) waited = ahead.batch->take(ahead.position, file_);
  if (!waited) {
    const uint64_t before = own_waits();
    job.source->read_if(index, file_, PictureDecoder::knows, std::numeric_limits<size_t>::max());
    waited = own_waits() != before;
  }
  if (job.source->may_wait()) {
    times_.files = 1;
    times_.waited = *waited ? 1 : 0;
  }
  job.source->read_seek_index(index, index_);
  return SampleBytes{file_.data(), file_.size()};
}

PictureSize SampleDecoder::open(const ImageJob& job, const SampleBytes& file,
                                const std::atomic<bool>* stop) {
  JpegOptions options = job.jpeg;
  options.stop = stop;
  options.seek_index = {index_.data(), index_.size()};
  options.seek_indices = job.seek_indices.get();
  options.indices = job.following && job.following->mask;
  return picture_.open(file.data, file.size, options);
}

void SampleDecoder::decode(const ImageJob& job, uint64_t index, uint64_t seed, void* out,
                           const std::atomic<bool>* stop) {
  const GivingBack afterwards{*this};
  const PictureView view{&job, 0, out};
  decode_kept(index, SampleKey{index, seed}, &view, 1, stop);
}

void SampleDecoder::decode(uint64_t index, const SampleKey& key,
                           const std::vector<PictureView>& views, const std::atomic<bool>* stop,
                           const FileAhead& ahead) {
  const GivingBack afterwards{*this};
  decode_kept(index, key, views.data(), views.size(), stop, ahead);
}

const Canvas& SampleDecoder::picture(const ImageJob& job, uint64_t index, const SampleKey& key,
                                     uint32_t number) {
  if (job.output != ImageJob::Output::kAnySize) {
    throw InvalidArgument("the job's pictures have a size");
  }
  const PictureView view{&job, number, nullptr};
  try {
    decode_kept(index, key, &view, 1, nullptr);
  } catch (...) {
    const GivingBack afterwards{*this};
    throw;
  }
  return canvas_;
}

void SampleDecoder::decode_kept(uint64_t index, const SampleKey& key, const PictureView* views,
                                size_t count, const std::atomic<bool>* stop,
                                const FileAhead& ahead) {
  if (count == 0) throw InvalidArgument("a sample of no views");
  const ImageJob& job = *views[0].job;
  large_ = 0;
  size_ = ImageSize{};
  times_ = StageTimes{};
  times_.pictures = 1;
  const bool traced = trace::on();
  Lap lap(times_stages() || traced);
  const int64_t begun = lap.begun();
  const SampleBytes file = fetch(job, index, ahead);
  times_.read = lap();
  times_.bytes = file.size;
  if (const std::optional<PixelSize> known = job.source->pixels(index)) {
    size_ = ImageSize{known->height, known->width};
    for (size_t i = 0; i < count; ++i) {
      const SampleGeometry geometry =
          draw_geometry(*views[i].job, size_, key.seed, key.sample, views[i].number);
      finish_view(key, views[i], geometry, file.data, whole(size_), lap, stop);
    }
    // Nothing was decoded: it is all the resize's.
    times_.looked_at = times_.resize = times_.decode;
  } else {
    decode_file(file, key, views, count, lap, stop);
    if (const std::optional<JpegRefusal> refusal = picture_.jpeg_refusal()) {
      ++times_.jpegs[static_cast<size_t>(*refusal)];
      if (picture_.seek_use() == SeekUse::kUsed) ++times_.indexed;
      if (picture_.seek_use() == SeekUse::kUnfit) ++times_.unfit;
    }
  }
  if (!traced) return;
  const int64_t decoded = begun + times_.read + times_.decode;
  const int64_t made = decoded + times_.recipe;
  trace::record("read", begun, begun + times_.read);
  trace::record("decode and resample", begun + times_.read, decoded);
  if (job.recipe != nullptr) trace::record("recipe", decoded, made);
  if (job.output == ImageJob::Output::kNhwcBytes || job.output == ImageJob::Output::kAnySize) {
    return;
  }
  const bool normalized =
      job.output == ImageJob::Output::kNormalized || job.output == ImageJob::Output::kLookedUp;
  trace::record(normalized ? "normalise" : "collate", made, made + times_.finish);
}

void SampleDecoder::decode_file(const SampleBytes& file, const SampleKey& key,
                                const PictureView* views, size_t count, Lap& lap,
                                const std::atomic<bool>* stop) {
  const ImageJob& job = *views[0].job;
  const PictureSize header = open(job, file, stop);
  look_at_orientation(job, file, header);
  const uint64_t pixels = uint64_t{header.width} * header.height;
  if (pixels > job.large_pixels) large_ = pixels;
  if (!orientation_.upright()) return decode_turned(file, key, views, count, lap, stop);
  if (count > 1 && decode_shared(key, views, count, lap, stop)) return;
  const bool look = times_stages() && decodes_++ % kLookedAt == 0;
  for (size_t i = 0; i < count; ++i) {
    if (i > 0) open(*views[i].job, file, stop);
    decode_view(key, views[i], look, lap, stop);
  }
  if (look) times_.looked_at = times_.decode;
}

void SampleDecoder::decode_view(const SampleKey& key, const PictureView& view, bool timed, Lap& lap,
                                const std::atomic<bool>* stop) {
  const ImageJob& job = *view.job;
  const SampleGeometry geometry = draw_geometry(job, size_, key.seed, key.sample, view.number);
  if (moves_only(job)) {
    picture_.begin(region_of(geometry.box));
    move_pixels(view, geometry, [&] { return picture_.read_row(); }, stop);
    times_.decode += lap();
    apply_recipe(key, view, stop);
    times_.recipe += lap();
    finish(view);
    times_.finish += lap();
    return;
  }
  int denominator = 1;
  if (job.approximate) {
    denominator = picture_.reduce(denominator_for(geometry));
  }
  const CropBox needed = begin(job, geometry, denominator, view.out);
  picture_.begin(region_of(needed));
  push_rows(needed.height, timed);
  times_.decode += lap();
  apply_recipe(key, view, stop);
  times_.recipe += lap();
  finish(view);
  times_.finish += lap();
}

bool SampleDecoder::decode_shared(const SampleKey& key, const PictureView* views, size_t count,
                                  Lap& lap, const std::atomic<bool>* stop) {
  std::vector<SampleGeometry> geometries;
  geometries.reserve(count);
  double apart = 0;
  std::optional<CropBox> all;
  for (size_t i = 0; i < count; ++i) {
    const PictureView& view = views[i];
    const ImageJob& job = *view.job;
    if (job.approximate) return false;  // each view is decoded at a part of the size of its own
    if (job.following && job.following->mask) return false;  // others don't want its indices
    const SampleGeometry& geometry =
        geometries.emplace_back(draw_geometry(job, size_, key.seed, key.sample, view.number));
    apart += decoding_cost(geometry.box, size_);
    all = all ? around(*all, geometry.box) : geometry.box;
  }
  const size_t bytes = all->width * all->height * kRgb;
  if (bytes > kKeptCanvas || decoding_cost(*all, size_) > apart) return false;
  uint8_t* pixels = at_least(shared_, bytes);
  picture_.begin(region_of(*all));
  const size_t row_bytes = all->width * kRgb;
  for (size_t y = 0; y < all->height; ++y) {
    std::memcpy(pixels + y * row_bytes, picture_.read_row(), row_bytes);
  }
  for (size_t i = 0; i < count; ++i) {
    if (stop != nullptr && stop->load(std::memory_order_relaxed)) {
      throw Stopped("the batch was stopped");
    }
    finish_view(key, views[i], geometries[i], pixels, *all, lap, stop);
  }
  return true;
}

void SampleDecoder::look_at_orientation(const ImageJob& job, const SampleBytes& file,
                                        const PictureSize& stored) {
  std::optional<Orientation> found = Orientation();
  if (job.upright) found = read_orientation(file.data, file.size);
  if (!found) throw UnsupportedImage("a picture whose EXIF orientation only Pillow can tell");
  orientation_ = *found;
  stored_ = ImageSize{stored.height, stored.width};
  size_ = orientation_.shown(stored_);
}

void SampleDecoder::decode_turned(const SampleBytes& file, const SampleKey& key,
                                  const PictureView* views, size_t count, Lap& lap,
                                  const std::atomic<bool>* stop) {
  for (size_t i = 0; i < count; ++i) {
    const PictureView& view = views[i];
    const ImageJob& job = *view.job;
    if (i > 0) open(job, file, stop);
    const SampleGeometry geometry = draw_geometry(job, size_, key.seed, key.sample, view.number);
    if (moves_only(job)) throw UnsupportedImage("a picture that is turned and follows another one");
    const CropBox shown = begin(job, geometry, 1, view.out);
    const CropBox part = orientation_.stored(shown, stored_);
    const size_t bytes = part.width * part.height * kRgb;
    uint8_t* const stored = at_least(shared_, bytes);
    uint8_t* const turned = at_least(turned_, bytes);
    picture_.begin(region_of(part));
    const size_t row_bytes = part.width * kRgb;
    for (size_t y = 0; y < part.height; ++y) {
      std::memcpy(stored + y * row_bytes, picture_.read_row(), row_bytes);
    }
    orientation_.turn(stored, {part.height, part.width}, turned);
    for (size_t y = 0; y < shown.height; ++y) {
      resizer_.push_row(turned + y * shown.width * kRgb);
    }
    times_.decode += lap();
    apply_recipe(key, view, stop);
    times_.recipe += lap();
    finish(view);
    times_.finish += lap();
  }
}

void SampleDecoder::push_rows(size_t rows, bool timed) {
  if (!timed) {
    for (size_t y = 0; y < rows; ++y) resizer_.push_row(picture_.read_row());
    return;
  }
  Lap lap(true);
  for (size_t y = 0; y < rows; ++y) {
    const uint8_t* row = picture_.read_row();
    lap();
    resizer_.push_row(row);
    times_.resize += lap();
  }
}

void SampleDecoder::push_pixels(const PictureView& view, const SampleGeometry& geometry,
                                const uint8_t* pixels, const CropBox& part,
                                const std::atomic<bool>* stop) {
  if (moves_only(*view.job)) {
    const CropBox& box = geometry.box;
    const uint8_t* row = pixels + ((box.top - part.top) * part.width + box.left - part.left) * kRgb;
    const auto next_row = [&] {
      const uint8_t* found = row;
      row += part.width * kRgb;
      return found;
    };
    return move_pixels(view, geometry, next_row, stop);
  }
  const CropBox needed = begin(*view.job, geometry, 1, view.out);
  for (size_t y = 0; y < needed.height; ++y) {
    const size_t row = needed.top - part.top + y;
    resizer_.push_row(pixels + (row * part.width + needed.left - part.left) * kRgb);
  }
}

void SampleDecoder::finish_view(const SampleKey& key, const PictureView& view,
                                const SampleGeometry& geometry, const uint8_t* pixels,
                                const CropBox& part, Lap& lap, const std::atomic<bool>* stop) {
  push_pixels(view, geometry, pixels, part, stop);
  times_.decode += lap();
  apply_recipe(key, view, stop);
  times_.recipe += lap();
  finish(view);
  times_.finish += lap();
}

void SampleDecoder::transform(const SampleKey& key, const PictureView& view, const uint8_t* pixels,
                              const ImageSize& size) {
  const GivingBack afterwards{*this};
  const SampleGeometry geometry = draw_geometry(*view.job, size, key.seed, key.sample, view.number);
  push_pixels(view, geometry, pixels, whole(size), nullptr);
  apply_recipe(key, view, nullptr);
  finish(view);
}

SampleDraw SampleDecoder::draw(const ImageJob& job, uint64_t index, const SampleKey& key,
                               uint32_t number) {
  const GivingBack afterwards{*this};
  if (const std::optional<PixelSize> known = job.source->pixels(index)) {
    size_ = ImageSize{known->height, known->width};
  } else {
    const SampleBytes file = fetch(job, index);
    look_at_orientation(job, file, open(job, file));
  }
  return draw_sample(job, size_, key.sample, key.seed, number);
}

}  // namespace fastloader
