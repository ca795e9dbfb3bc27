#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "actor.h"
#include "check.h"
#include "gated_source.h"
#include "pipeline/buffer_pool.h"
#include "pipeline/decode_pool.h"

namespace fastloader::testing {

using Clock = DecodePool::Clock;
using Batch = std::shared_ptr<DecodeBatch>;
using Indices = std::vector<uint64_t>;

inline Indices range(uint64_t begin, uint64_t end) {
  Indices indices(end - begin);
  std::iota(indices.begin(), indices.end(), begin);
  return indices;
}

/// Random crops to 6 x 5 pixels, so that seeds matter.
inline std::shared_ptr<const ImageJob> job_of(std::shared_ptr<const Source> source) {
  auto job = std::make_shared<ImageJob>();
  job->source = std::move(source);
  job->transform.random_crop = CropRange{};
  job->transform.scale = ImageTransform::Scale::kExact;
  job->transform.exact = {5, 6};
  job->transform.horizontal_flip = 0.5;
  validate(*job);
  return job;
}

/// One loader: its source, its quota, its memory. Declare it after the pool: its destructor opens
/// the gates, and the pool's joins the threads that stood there.
struct Loader {
  explicit Loader(uint64_t samples, size_t threads)
      : Loader(std::make_shared<GatedSource>(samples), threads, ReadingNeed::Mode::kNever) {}
  Loader(std::shared_ptr<GatedSource> gated, size_t threads, ReadingNeed::Mode reading)
      : source(std::move(gated)),
        job(job_of(source)),
        quota(std::make_shared<DecodeQuota>(threads, reading)),
        memory(BufferPool::create()) {}
  ~Loader() { source->open_all(); }

  Batch batch(Indices indices, std::vector<uint64_t> seeds = {7}) const {
    return batch(std::move(indices), std::move(seeds), quota);
  }
  /// The same under the quota of another loader.
  Batch batch(Indices indices, std::vector<uint64_t> seeds,
              const std::shared_ptr<DecodeQuota>& threads) const {
    return std::make_shared<DecodeBatch>(job, threads, std::move(indices), std::move(seeds),
                                         [this](size_t bytes) { return memory->share(bytes); });
  }

  const std::shared_ptr<GatedSource> source;
  const std::shared_ptr<const ImageJob> job;
  const std::shared_ptr<DecodeQuota> quota;
  const std::shared_ptr<BufferPool> memory;
};

inline bool done(DecodePool& pool, const Batch& batch) {
  return pool.wait(*batch, Clock::now()) == DecodePool::WaitStatus::kDone;
}

/// A minute is for ever here: what takes longer hangs.
inline void expect_done(DecodePool& pool, const Batch& batch) {
  EXPECT(pool.wait(*batch, Clock::now() + std::chrono::seconds(60)) ==
         DecodePool::WaitStatus::kDone);
}

inline Batch submitted(DecodePool& pool, Batch batch) {
  pool.submit(batch);
  return batch;
}

inline std::vector<uint8_t> bytes_of(const DecodeBatch& batch, size_t position) {
  const auto* from = reinterpret_cast<const uint8_t*>(batch.sample(position));
  return {from, from + batch.job().sample_bytes()};
}

inline std::vector<uint8_t> decoded_alone(const Loader& loader, uint64_t index, uint64_t seed) {
  SampleDecoder decoder;
  std::vector<uint8_t> out(loader.job->sample_bytes());
  decoder.decode(*loader.job, index, seed, out.data());
  return out;
}

}  // namespace fastloader::testing
