// The work that one picture may cause, and what ends it.

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "decode_pool_test.h"
#include "image/jpeg/decoder.h"
#include "image/jpeg/scans.h"
#include "jpeg_bomb.h"
#include "source/folder_source.h"

namespace fastloader {
namespace {

using namespace testing;

void decode(JpegDecoder& decoder, const std::vector<uint8_t>& jpeg, const JpegOptions& options) {
  const JpegHeader header = decoder.open(jpeg.data(), jpeg.size(), options);
  decoder.begin({0, 0, header.width, header.height});
  for (uint32_t y = 0; y < header.height; ++y) decoder.read_row();
}

/// Nothing but `stop` ends it.
JpegOptions boundless() {
  JpegOptions options;
  options.scan_limit = std::numeric_limits<int>::max();
  options.work_limit = std::numeric_limits<uint64_t>::max();
  return options;
}

TEST(a_picture_may_have_a_hundred_scans) {
  JpegDecoder decoder;
  for (const Truncated truncated : {Truncated::kError, Truncated::kPad}) {
    JpegOptions options;
    options.truncated = truncated;
    decode(decoder, jpeg_bomb(40, 24, 100), options);
    EXPECT_THROW(decode(decoder, jpeg_bomb(40, 24, 101), options), RefusedImage,
                 "40x24 pixels has more than 100 scans; 100 are the most, and 2147483648");
    std::vector<uint8_t> cut = jpeg_bomb(40, 24, 500);
    cut.resize(cut.size() - 3);
    EXPECT_THROW(decode(decoder, cut, options), RefusedImage, "more than 100 scans");
  }
  decode(decoder, jpeg_bomb(40, 24, 3), {});
}

TEST(scans_times_pixels_are_bounded) {
  JpegDecoder decoder;
  JpegOptions options;
  options.work_limit = 27 * 40 * 24 + 5;
  decode(decoder, jpeg_bomb(40, 24, 27), options);
  EXPECT_THROW(decode(decoder, jpeg_bomb(40, 24, 28), options), RefusedImage,
               "more than 27 scans; 100 are the most, and 25925 for scans times pixels");
  // A picture within a limit of pixels that was lifted may always have twelve.
  EXPECT_EQ(most_jpeg_work(kPillowPixelLimit), kMostWork);
  EXPECT_EQ(most_jpeg_work(uint64_t{1} << 32), uint64_t{12} << 32);
  EXPECT(most_jpeg_work(UINT64_MAX) > UINT64_MAX - 12);
  // The real bound, of 33 scans at that size.
  EXPECT_THROW(decode(decoder, jpeg_bomb(8000, 8000, 5000), {}), RefusedImage,
               "8000x8000 pixels has more than 33 scans");
}

std::string counted(const std::vector<uint8_t>& bytes) {
  const JpegScans found = count_jpeg_scans(bytes.data(), bytes.size());
  return std::to_string(found.width) + "x" + std::to_string(found.height) + ", " +
         std::to_string(found.scans);
}

/// The fuzzer compares the count with libjpeg's, of any bytes.
TEST(scans_are_counted_without_decoding) {
  EXPECT_EQ(counted({}), std::string("0x0, 0"));
  EXPECT_EQ(counted({0xff}), std::string("0x0, 0"));
  EXPECT_EQ(counted({0xff, 0xd8, 0xff}), std::string("0x0, 0"));
  EXPECT_EQ(counted({0xff, 0xd8, 0xff, 0xda}), std::string("0x0, 1"));
  const std::vector<uint8_t> bomb = jpeg_bomb(8000, 4000, 4321);
  EXPECT_EQ(counted(bomb), std::string("8000x4000, 4321"));
  for (size_t size = 0; size < 300; ++size) {  // however it ends
    counted(std::vector<uint8_t>(bomb.begin(), bomb.begin() + static_cast<long>(size)));
  }
  // Behind what libjpeg passes over at a restart, and others might take for a long segment.
  std::vector<uint8_t> hidden = jpeg_bomb(40, 24, 1);
  const std::vector<uint8_t> rest = jpeg_bomb(40, 24, 200);
  hidden.resize(hidden.size() - 2);
  hidden.insert(hidden.end(), {0xff, 0x02, 0xff, 0xff});
  hidden.insert(hidden.end(), rest.begin() + static_cast<long>(hidden.size() - 4), rest.end());
  EXPECT_EQ(counted(hidden), std::string("40x24, 200"));
}

TEST(a_decode_ends_soon_after_it_was_stopped) {
  const std::vector<uint8_t> minutes = jpeg_bomb(4000, 4000, 20000);
  std::atomic<bool> stop{false};
  JpegOptions options = boundless();
  options.stop = &stop;
  JpegDecoder decoder;
  std::thread other([&] { stop = true; });
  EXPECT_THROW(decode(decoder, minutes, options), Stopped, "not wanted");
  other.join();
  stop = false;
  decode(decoder, jpeg_bomb(40, 24, 30), options);
  // Between rows, too.
  const std::vector<uint8_t> small = jpeg_bomb(40, 24, 2);
  decoder.open(small.data(), small.size(), options);
  decoder.begin({0, 0, 40, 24});
  decoder.read_row();
  stop = true;
  EXPECT_THROW(while (true) decoder.read_row(), Stopped, "not wanted");
}

TEST(cancelling_a_batch_ends_the_decoding_of_its_pictures) {
  const std::vector<uint8_t> minutes = jpeg_bomb(4000, 4000, 20000);
  DecodePool pool;
  auto job = std::make_shared<ImageJob>();
  job->source =
      std::make_shared<MemorySource>(std::vector<std::vector<uint8_t>>{minutes, minutes, minutes});
  job->transform.scale = ImageTransform::Scale::kExact;
  job->transform.exact = {5, 6};
  job->jpeg = boundless();
  validate(*job);
  const auto quota = std::make_shared<DecodeQuota>(3);
  const auto memory = BufferPool::create();
  pool.grow(3);
  const auto batch =
      std::make_shared<DecodeBatch>(job, quota, Indices{0, 1, 2}, std::vector<uint64_t>{7},
                                    [&](size_t bytes) { return memory->share(bytes); });
  pool.submit(batch);
  // Until all of them are at it: they use the processor.
  while (pool.cpu_ns() < 20'000'000) std::this_thread::yield();
  pool.cancel(*batch);  // returns when no thread works on it
  EXPECT(batch->stopped());
}

TEST(what_a_picture_was_refused_for_is_told_by_its_kind) {
  using Kind = DecodeBatch::Failure::Kind;
  DecodePool pool;
  auto job = std::make_shared<ImageJob>();
  const std::vector<std::vector<uint8_t>> files{jpeg_bomb(40, 24, 2),
                                                jpeg_bomb(40, 24, 200),
                                                {0xff, 0xd8},
                                                jpeg_bomb(60, 24, 2),
                                                jpeg_bomb(90, 30, 2)};
  job->source = std::make_shared<MemorySource>(files);
  job->transform.scale = ImageTransform::Scale::kExact;
  job->transform.exact = {5, 6};
  job->large_pixels = 1000;
  job->jpeg.pixel_limit = 2000;
  validate(*job);
  const auto memory = BufferPool::create();
  pool.grow(2);
  const auto batch = std::make_shared<DecodeBatch>(
      job, std::make_shared<DecodeQuota>(2), range(0, 5), std::vector<uint64_t>{7},
      [&](size_t bytes) { return memory->share(bytes); });
  expect_done(pool, submitted(pool, batch));
  const auto& found = batch->failures();
  EXPECT_EQ(found.size(), 4u);
  const Kind kinds[] = {Kind::kRefused, Kind::kFailed, Kind::kLarge, Kind::kRefused};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(found[i].position, i + 1);
    EXPECT(found[i].kind == kinds[i]);
  }
  EXPECT_EQ(found[2].reason, std::string("Image size (1440 pixels) exceeds limit of 1000 pixels, "
                                         "could be decompression bomb DOS attack."));
  EXPECT_EQ(found[3].reason, std::string("Image size (2700 pixels) exceeds limit of 2000 pixels, "
                                         "could be decompression bomb DOS attack."));
}

/// A sparse file that begins with these bytes.
class LargeFile {
 public:
  LargeFile(const std::vector<uint8_t>& begin, long bytes) {
    std::FILE* file = fdopen(mkstemp(path_.data()), "wb");
    EXPECT(file != nullptr);
    std::fwrite(begin.data(), 1, begin.size(), file);
    std::fseek(file, bytes - 1, SEEK_SET);
    std::fputc(0, file);
    std::fclose(file);
    end_ = path_.size();
    job_->source = std::make_shared<FolderSource>(path_.data(), path_.size(), &end_, 1);
    job_->transform.scale = ImageTransform::Scale::kExact;
    job_->transform.exact = {5, 6};
    validate(*job_);
  }
  ~LargeFile() { std::remove(path_.c_str()); }
  const ImageJob& job() const { return *job_; }

 private:
  std::string path_ = "/tmp/fastloader-large-XXXXXX";
  uint64_t end_ = 0;
  const std::shared_ptr<ImageJob> job_ = std::make_shared<ImageJob>();
};

TEST(of_a_large_file_that_is_no_picture_only_the_beginning_is_read) {
  SampleDecoder decoder;
  uint8_t out[90];
  const LargeFile zeros({0}, long{1} << 30);
  EXPECT_THROW(decoder.decode(zeros.job(), 0, 1, out), DecodeError,
               "begins as none of the formats");
  EXPECT(decoder.scratch_bytes() < size_t{1} << 20);
}

TEST(what_an_outlier_needed_is_given_back) {
  SampleDecoder decoder;
  uint8_t out[90];
  const std::vector<uint8_t> jpeg = jpeg_bomb(40, 24, 2);
  const LargeFile usual(jpeg, long{3} << 20);
  decoder.decode(usual.job(), 0, 1, out);
  EXPECT(decoder.scratch_bytes() > size_t{3} << 20);
  const LargeFile outlier(jpeg, long{100} << 20);
  decoder.decode(outlier.job(), 0, 1, out);
  EXPECT(decoder.scratch_bytes() < size_t{1} << 20);
  decoder.draw(outlier.job(), 0, {0, 1});
  EXPECT(decoder.scratch_bytes() < size_t{1} << 20);
}

}  // namespace
}  // namespace fastloader

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
