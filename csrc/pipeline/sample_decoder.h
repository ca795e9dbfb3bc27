#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "image/ops/canvas.h"
#include "image/orientation.h"
#include "image/picture_decoder.h"
#include "image/resize/resizer.h"
#include "pipeline/image_job.h"
#include "pipeline/read_ahead.h"
#include "pipeline/stage_times.h"
#include "source/source.h"

namespace fastloader {

/// What the random numbers of a sample are drawn from.
struct SampleKey {
  uint64_t sample = 0;
  uint64_t seed = 0;
};

/// A finished picture of a size of its own, in memory of its own.
struct OwnPicture {
  ImageSize size;
  std::shared_ptr<std::byte> memory;
};

/// Makes memory for so many bytes. Called on any thread. May throw std::bad_alloc.
using Allocate = std::function<std::shared_ptr<std::byte>(size_t bytes)>;

/// One of the pictures that are made of a sample's file.
struct PictureView {
  const ImageJob* job = nullptr;
  uint32_t number = 0;        ///< which picture of its sample it is
  void* out = nullptr;        ///< `job->sample_bytes()`, unless pictures have sizes of their own
  OwnPicture* own = nullptr;  ///< where such a picture is put
  const Allocate* allocate = nullptr;
};

/// A file that may be read ahead of the decoder.
struct FileAhead {
  ReadBatch* batch = nullptr;  ///< null: it is not
  size_t position = 0;
};

/// What Pillow warns with of a picture of more pixels than its limit.
std::string words_of_large(uint64_t pixels, uint64_t limit);

/// Turns a sample's bytes into its finished pixels. One per thread. Keeps every buffer that it
/// needs, so that it allocates nothing once it has seen the largest usual picture.
class SampleDecoder {
 public:
  SampleDecoder() = default;

  /// Reads, decodes, crops, resizes, flips, does what the recipe says and writes
  /// `job.sample_bytes()` at `out`. Throws SourceError, DecodeError, UnsupportedImage,
  /// RefusedImage, and Stopped soon after `*stop` has become true; what is at `out` is undefined
  /// then.
  void decode(const ImageJob& job, uint64_t index, uint64_t seed, void* out,
              const std::atomic<bool>* stop = nullptr);

  /// The same for several pictures of file `index`, whose jobs have one source. The file is read
  /// once, unless it was read ahead. It is decoded once if that is cheaper than to decode each
  /// view's part of it.
  void decode(uint64_t index, const SampleKey& key, const std::vector<PictureView>& views,
              const std::atomic<bool>* stop = nullptr, const FileAhead& ahead = {});
  /// The size of the last file's picture; zeros if its header could not be read.
  const ImageSize& size() const { return size_; }
  /// The pixels of the last picture, if they are more than the job's `large_pixels`; otherwise 0.
  uint64_t large() const { return large_; }
  /// What the last decode() took. If that failed: what it took until then.
  const StageTimes& times() const { return times_; }

  /// Makes one view of pixels that another decoder made at their full size: RGB, 3 bytes each,
  /// rows without gaps.
  void transform(const SampleKey& key, const PictureView& view, const uint8_t* pixels,
                 const ImageSize& size);

  /// The same as decode() for a job of kAnySize. What comes out stays until the next call: the
  /// caller gives back what it took.
  const Canvas& picture(const ImageJob& job, uint64_t index, const SampleKey& key,
                        uint32_t number = 0);

  /// What is drawn for a sample, whose size() its header says.
  SampleDraw draw(const ImageJob& job, uint64_t index, const SampleKey& key, uint32_t number = 0);

  /// Gives back the memory that only an outlier had needed, whatever format it had, and has still
  /// for a picture that was given up. decode() and draw() end in it.
  void give_back();

  /// Bytes kept from picture to picture, without the libraries' own tables: what usual pictures
  /// need.
  size_t scratch_bytes() const {
    return file_.capacity() + index_.capacity() + pixels_.capacity() + picture_.scratch_bytes() +
           resizer_.scratch_bytes() + canvas_.scratch_bytes() + shared_.capacity() +
           turned_.capacity();
  }

 private:
  struct GivingBack {
    SampleDecoder& decoder;
    ~GivingBack() {
      try {
        decoder.give_back();
      } catch (const std::bad_alloc&) {
        // Not even an empty decoder can be made: what is large goes after the next sample.
      }
    }
  };

  SampleBytes fetch(const ImageJob& job, uint64_t index, const FileAhead& ahead = {});
  PictureSize open(const ImageJob& job, const SampleBytes& file,
                   const std::atomic<bool>* stop = nullptr);
  void decode_kept(uint64_t index, const SampleKey& key, const PictureView* views, size_t count,
                   const std::atomic<bool>* stop, const FileAhead& ahead = {});
  /// Decodes a file for its views, and makes them.
  void decode_file(const SampleBytes& file, const SampleKey& key, const PictureView* views,
                   size_t count, Lap& lap, const std::atomic<bool>* stop);
  /// Decodes what one view needs of the opened file, and makes the view.
  void decode_view(const SampleKey& key, const PictureView& view, bool timed, Lap& lap,
                   const std::atomic<bool>* stop);
  /// Decodes what all views need of it into `shared_`, and makes them. Returns false if it did
  /// nothing, because it is cheaper to decode for each view by itself.
  bool decode_shared(const SampleKey& key, const PictureView* views, size_t count, Lap& lap,
                     const std::atomic<bool>* stop);
  /// Decodes what each view needs of a picture that is to be turned, turns it, and makes the view.
  void decode_turned(const SampleBytes& file, const SampleKey& key, const PictureView* views,
                     size_t count, Lap& lap, const std::atomic<bool>* stop);
  /// How the opened file is to be shown.
  void look_at_orientation(const ImageJob& job, const SampleBytes& file, const PictureSize& stored);
  /// Resizes or moves pixels that are decoded already. `part` is the part of the picture that they
  /// are.
  void push_pixels(const PictureView& view, const SampleGeometry& geometry, const uint8_t* pixels,
                   const CropBox& part, const std::atomic<bool>* stop);
  /// Lays the part of a picture that is used on the canvas, row by row, and moves its pixels where
  /// the geometry wants them.
  template <class NextRow>
  void move_pixels(const PictureView& view, const SampleGeometry& geometry, const NextRow& next_row,
                   const std::atomic<bool>* stop);
  /// Makes a view of them.
  void finish_view(const SampleKey& key, const PictureView& view, const SampleGeometry& geometry,
                   const uint8_t* pixels, const CropBox& part, Lap& lap,
                   const std::atomic<bool>* stop);
  /// Starts the resize of a picture that was decoded at 1/`denominator` and returns the part of it
  /// that the resize wants.
  CropBox begin(const ImageJob& job, const SampleGeometry& geometry, int denominator, void* out);
  /// Decodes and resizes them; `timed` looks at the clock at each.
  void push_rows(size_t rows, bool timed);
  void apply_recipe(const SampleKey& key, const PictureView& view, const std::atomic<bool>* stop);
  void finish(const PictureView& view);

  PictureDecoder picture_;
  Resizer resizer_;
  Canvas canvas_;  // the picture, while a recipe works on it
  std::vector<uint8_t> file_;
  std::vector<uint8_t> index_;   // the seek index beside it
  std::vector<uint8_t> pixels_;  // the finished picture, where its final layout is another
  std::vector<uint8_t> shared_;  // the part of the picture of which several views are made
  std::vector<uint8_t> turned_;  // a part of a picture, once it was turned
  Orientation orientation_;
  ImageSize stored_;  // the size before it is turned
  ImageSize size_;
  uint8_t* finished_ = nullptr;  // where the finished NHWC picture lies
  ImageSize made_;               // its size
  StageTimes times_;
  uint64_t large_ = 0;
  uint64_t decodes_ = 0;
};

}  // namespace fastloader
