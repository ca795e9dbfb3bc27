#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace fastloader {

/// The bytes of one sample: an encoded picture, unless Source::pixels() says that they are pixels.
/// Does not own them.
struct SampleBytes {
  const uint8_t* data = nullptr;
  size_t size = 0;
};

/// No picture is that large; a disk image or a sparse file may be larger than the memory.
constexpr uint64_t kLargestSample = uint64_t{1} << 30;

struct PixelSize {
  size_t height = 0;
  size_t width = 0;
};

/// Where the bytes of samples come from. Immutable after construction, so that any thread may read.
class Source {
 public:
  Source() = default;
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;
  virtual ~Source() = default;

  virtual uint64_t size() const = 0;
  /// Replaces the contents of `bytes`, whose capacity is kept from sample to sample. Throws
  /// SourceError with the sample's name and the system's reason.
  virtual void read(uint64_t index, std::vector<uint8_t>& bytes) const = 0;
  /// Tells from the beginning of a file whether the caller wants the rest.
  using Look = bool (*)(const uint8_t* begin, size_t size);
  /// Does as read(), but may give only the beginning of a large file that `look` does not want.
  /// May return false, having read nothing, if the sample has more than `most` bytes.
  virtual bool read_if(uint64_t index, std::vector<uint8_t>& bytes, Look /*look*/,
                       size_t /*most*/) const {
    read(index, bytes);
    return true;
  }
  /// Replaces the contents of `bytes` by the seek index that is kept beside a JPEG
  /// (image/jpeg/seek/index.h), or by nothing.
  virtual void read_seek_index(uint64_t /*index*/, std::vector<uint8_t>& bytes) const {
    bytes.clear();
  }
  /// Whether reading may wait for a disk or a network, so that it pays to read ahead.
  virtual bool may_wait() const { return false; }
  /// A sample that is wanted together with others.
  struct Wanted {
    uint64_t index = 0;
    std::vector<uint8_t> bytes;
    bool read = false;
    bool waited = false;  ///< for a disk or a network
  };
  /// Is told of each sample that was read, as soon as it is. Must not throw: others are under way.
  using Told = std::function<void(Wanted&)>;
  /// Reads samples side by side, as far as the system can. Leaves those that are not read: those of
  /// more than `most` bytes, and those that cannot be read. read_if() says why.
  virtual void read_together(std::vector<Wanted>& /*wanted*/, size_t /*most*/,
                             const Told& /*told*/) const {}
  /// So many samples are best wanted together.
  virtual size_t together() const { return 1; }
  /// Returns the sample if it lies in memory already, which stays and can be read, for as long as
  /// the source lives. Otherwise read() it.
  virtual std::optional<SampleBytes> view(uint64_t /*index*/) const { return std::nullopt; }
  /// The size of a sample whose bytes are pixels already: RGB, 3 bytes each, rows without gaps.
  /// Nothing: they are an encoded picture.
  virtual std::optional<PixelSize> pixels(uint64_t /*index*/) const { return std::nullopt; }
  /// What to call the sample in a message: its path, its key.
  virtual std::string name(uint64_t index) const = 0;
};

}  // namespace fastloader
