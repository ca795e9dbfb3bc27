#include "scenario.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <thread>
#include <utility>

#include "backend/registry.h"

namespace fastloader::testing {
namespace {

constexpr auto kPatience = std::chrono::seconds(10);
constexpr auto kHearOut = std::chrono::seconds(2);

Ring::Clock::time_point soon() { return Ring::Clock::now() + kPatience; }

/// A batch that was delivered, and what the consumer's stream has seen of it.
struct Seen {
  std::unique_ptr<OfferedMemory> memory;
  std::vector<Bytes> leaves;
  bool used = false;  // by the stream; read only once the stream is synchronised
};

struct Offer {
  std::unique_ptr<OfferedMemory> memory;
  const ConsumerStream* stream = nullptr;  // made on
};

class Run {
 public:
  Run(const Scenario& scenario, const std::vector<std::unique_ptr<ConsumerStream>>& streams,
      Outcome* outcome)
      : scenario_(scenario), streams_(streams), outcome_(*outcome) {}

  void run(bool hear_out) {
    try {
      prefetcher_ = std::make_unique<Prefetcher>(open_backend("cuda"), scenario_.device, 2, kLimit);
    } catch (const std::exception& error) {
      outcome_.fail("opening", error.what());
      return;
    }
    for (size_t i = 0;
         i < scenario_.taken.size() && outcome_.error.empty() && !outcome_.by_stream && !in_vain_;
         ++i) {
      last_ = i + 1 == scenario_.taken.size();
      run_epoch(scenario_.taken[i], hear_out && last_);
    }
    outcome_.told = prefetcher_->ring().stats().why_not_pinned;
    look_at_device();
    outcome_.calm_at_close = cuda_emulated::faults_struck() == 0;
    bool well = true;
    for (const auto& stream : streams_) well = stream->synchronize() == cudaSuccess && well;
    outcome_.by_stream = outcome_.by_stream || !well;
    prefetcher_.reset();
    cuda_emulated::drain();
    look(well);
  }

  void keep(std::vector<std::unique_ptr<OfferedMemory>>* kept) {
    for (auto& each : seen_) kept->push_back(std::move(each->memory));
    for (Offer& each : cancelled_) kept->push_back(std::move(each.memory));
    for (auto& each : displaced_) kept->push_back(std::move(each));
  }

 private:
  const std::vector<Batch>& batches() const { return scenario_batches(scenario_.large); }

  void run_epoch(size_t take, bool hear_out) {
    const Ring::Epoch epoch = prefetcher_->ring().open_epoch();
    std::string producer_error;
    std::thread producer([&] { produce(epoch.number, &producer_error); });
    try {
      consume(epoch.first_seq, take);
      if (hear_out && cuda_emulated::faults_struck() > 0) {
        Ticket ticket;
        step_ = "waiting after the end";
        prefetcher_->ring().wait_arrival(Ring::Clock::now() + kHearOut, &ticket);
      }
    } catch (const TorchFailure&) {
      outcome_.by_stream = true;
    } catch (const std::exception& error) {
      outcome_.fail(step_, error.what());
      // A credit that was refused was not given, and another one may be: nothing has failed.
      if (step_ != kGivingCredit) ask_again();
    }
    look_at_device();
    std::vector<uintptr_t> handles;
    for (const auto& stream : streams_) handles.push_back(stream->handle());
    try {
      prefetcher_->cancel(handles);
    } catch (const std::exception& error) {
      outcome_.fail("cancel", error.what());
    }
    look_at_device();
    // What was offered and not delivered goes back to the streams it was made on.
    for (auto& [seq, offer] : offered_) {
      OfferedMemory* memory = offer.memory.get();
      offer.stream->run([memory] { memory->reuse_at_last(); });
      cancelled_.push_back(std::move(offer));
    }
    offered_.clear();
    producer.join();
    if (producer_error == "timeout") in_vain("the producer");
    if (!producer_error.empty()) outcome_.fail("the producer", producer_error.c_str());
  }

  void produce(uint64_t epoch, std::string* error) {
    try {
      for (const Batch& batch : batches()) {
        const WaitStatus waited = prefetcher_->push(epoch, batch.layout, batch.addresses(), soon());
        if (waited == WaitStatus::kTimeout) *error = "timeout";
        if (waited != WaitStatus::kOk) return;
      }
      prefetcher_->ring().put(epoch, EntryKind::kEnd, soon());
    } catch (const std::exception& failure) {
      *error = failure.what();
      prefetcher_->ring().fail(failure.what());
    }
  }

  void consume(uint64_t first_seq, size_t take) {
    for (size_t taken = 0; taken < take;) {
      const ConsumerStream& stream =
          *streams_[scenario_.stream_of[taken % scenario_.stream_of.size()]];
      Ticket ticket;
      step_ = "waiting for a batch";
      const Arrival arrival = prefetcher_->ring().wait_arrival(soon(), &ticket);
      if (arrival == Arrival::kTimeout) return in_vain("the consumer");
      if (arrival == Arrival::kNeedsCredit) {
        top_up(first_seq, stream);
        continue;
      }
      if (arrival != Arrival::kBatch) {
        prefetcher_->ring().delivered();
        if (arrival != Arrival::kEnd || taken != batches().size()) {
          outcome_.harm(Harm::kNoEnd, "the end came after " + std::to_string(taken) + " batches");
        }
        return;
      }
      if (last_ && taken + 1 == batches().size()) {
        outcome_.calm_at_last = cuda_emulated::faults_struck() == 0;
      }
      step_ = "delivering";
      prefetcher_->deliver(ticket, stream.handle());
      look_at_device();
      use(first_seq + taken, taken, stream);
      ++taken;
      ++outcome_.delivered;
      top_up(first_seq, stream);
    }
  }

  void top_up(uint64_t first_seq, const ConsumerStream& stream) {
    for (const Ring::Uncredited& missing : prefetcher_->ring().uncredited(false)) {
      const SharedLayout layout = batches()[missing.seq - first_seq].layout;
      Offer offer{std::make_unique<OfferedMemory>(scenario_.device, *layout), &stream};
      const OfferedMemory* memory = offer.memory.get();
      // The memory had another use before, on the stream it was made on.
      stream.run([memory, this] {
        if (!memory->use_slowly()) early_ = true;
      });
      Offer& place = offered_[missing.seq];
      if (place.memory != nullptr) displaced_.push_back(std::move(place.memory));
      place = std::move(offer);
      step_ = kGivingCredit;
      prefetcher_->give_credit(missing.seq, layout, memory->outputs(), memory->staging(),
                               stream.handle());
    }
  }

  void use(uint64_t seq, size_t number, const ConsumerStream& stream) {
    seen_.push_back(std::make_unique<Seen>());
    Seen* now = seen_.back().get();
    now->memory = std::move(offered_.at(seq).memory);
    offered_.erase(seq);
    number_.push_back(number);
    stream.run([now, &batch = batches()[number]] {
      now->used = true;
      for (size_t i = 0; i < batch.out.size(); ++i) {
        now->leaves.push_back(now->memory->read(i, batch.out[i].size()));
      }
      now->memory->reuse_at_last();  // the batch is done with
    });
  }

  /// A consumer that comes again hears of the failure again.
  void ask_again() {
    try {
      Ticket ticket;
      const Arrival again = prefetcher_->ring().wait_arrival(soon(), &ticket);
      if (again == Arrival::kTimeout) return in_vain("the consumer, after an error");
      outcome_.harm(Harm::kNotSticky, "the consumer was told once: " + outcome_.error);
    } catch (const std::exception&) {
    }
  }

  /// The consumer's thread has device 0 selected, as it had before the loader's calls.
  void look_at_device() {
    const cuda_emulated::Outsider torch;
    int now = 0;
    cudaGetDevice(&now);
    if (now != 0)
      outcome_.harm(Harm::kOtherDevice, "device " + std::to_string(now) + " is selected");
  }

  void in_vain(const char* waiting) {
    in_vain_ = true;
    outcome_.harm(Harm::kWaitedInVain, std::string(waiting) + " waited ten seconds");
  }

  /// What the consumer's stream has come to may be judged whatever became of the stream. On a
  /// context that broke it never comes to the rest, which no write can then be late for.
  static bool is_late(const OfferedMemory& memory, bool well) {
    return (well || memory.was_reused_at_last()) && !memory.still_reused();
  }

  /// When all has come to rest. `well`: all that the consumer queued has run.
  void look(bool well) {
    for (size_t i = 0; i < seen_.size(); ++i) {
      const std::string name = "batch " + std::to_string(i);
      // On a context that broke, only what ran before counts as reported good.
      if (well && !seen_[i]->used) outcome_.harm(Harm::kNoEnd, name + " was never used");
      const Batch& batch = batches()[number_[i]];
      for (size_t leaf = 0; leaf < seen_[i]->leaves.size(); ++leaf) {
        if (seen_[i]->leaves[leaf] == batch.out[leaf]) continue;
        outcome_.harm(Harm::kWrongBatch,
                      name + " was called good, its leaf " + std::to_string(leaf) + " is not");
      }
      if (is_late(*seen_[i]->memory, well)) {
        outcome_.harm(Harm::kLateWrite, name + "'s memory was written after its use");
      }
    }
    for (const Offer& each : cancelled_) {
      if (is_late(*each.memory, well)) {
        outcome_.harm(Harm::kLateWrite, "cancelled memory was written after its stream's point");
      }
    }
    if (early_) outcome_.harm(Harm::kEarlyWrite, "memory was written while it was in use");
  }

  const Scenario& scenario_;
  const std::vector<std::unique_ptr<ConsumerStream>>& streams_;
  Outcome& outcome_;
  std::map<uint64_t, Offer> offered_;
  std::vector<Offer> cancelled_;
  std::vector<std::unique_ptr<OfferedMemory>> displaced_;  // by another offer for the same batch
  std::vector<std::unique_ptr<Seen>> seen_;
  std::vector<size_t> number_;      // of the seen, within its epoch
  std::atomic<bool> early_{false};  // set by host functions, read when the streams are at rest
  static constexpr const char* kGivingCredit = "giving credit";
  const char* step_ = "";  // that the consumer is at
  bool in_vain_ = false;
  bool last_ = false;                       // the epoch is the last one
  std::unique_ptr<Prefetcher> prefetcher_;  // last: it is closed before the memory is given back
};

}  // namespace

const std::vector<Scenario>& scenarios() {
  const size_t all = scenario_batches().size() + 1;
  static const std::vector<Scenario> four{
      {"epoch", 0, {all}, {0}, {false}},
      {"cancel", 0, {2, all}, {0}, {false}, true},
      {"streams", 0, {all}, {0, 1, 2, 1}, {false, true, false}},
      {"device1", 1, {all}, {0, 1}, {false, true}},
  };
  return four;
}

const std::vector<Batch>& scenario_batches(bool large) {
  static const std::vector<Batch> small{image_batch(11, 4), plain_batch({1000, 301}, 12),
                                        plain_batch({9000}, 13), image_batch(14, 4),
                                        plain_batch({18000, 7}, 15)};
  // In the place of the third, which is under way when two have been taken.
  static const std::vector<Batch> with_large{small[0], small[1],
                                             plain_batch({700, BatchLayout::kDirectBytes, 40}, 16),
                                             small[3], small[4]};
  return large ? with_large : small;
}

void run_scenario(const Scenario& scenario,
                  const std::vector<std::unique_ptr<ConsumerStream>>& streams, bool hear_out,
                  std::vector<std::unique_ptr<OfferedMemory>>* kept, Outcome* outcome) {
  Run run(scenario, streams, outcome);
  run.run(hear_out);
  run.keep(kept);
}

void run_parts(Outcome* outcome) {
  const CudaReport report = describe_cuda();
  outcome->told = report.problem;
  for (const CudaReport::Device& device : report.devices) {
    if (device.name.find("unknown: ") == 0) outcome->told += "a device is " + device.name;
  }
  if (report.runtime_version == 0) outcome->told += "cudaRuntimeGetVersion gave none";
  if (report.driver_version == 0) outcome->told += "cudaDriverGetVersion gave none";
  try {
    Backend& backend = open_backend("cuda");
    backend.attach_thread(0);
    const auto host = backend.allocate_host(0, 10000);
    outcome->told += host->why_not_pinned();
    const auto block = backend.allocate_device(0, 10000);
    // Behind the stream, whatever it says: what frees the memory waits for the device.
    struct AtRest {
      ~AtRest() { cuda_emulated::drain(); }
    } at_rest;
    const auto event = backend.create_event(0);
    const auto stream = backend.create_stream(0);
    auto* bytes = static_cast<uint8_t*>(host->data());
    auto* device = static_cast<uint8_t*>(block->data());
    std::memset(bytes, 3, 5000);
    stream->copy_h2d_async(device, bytes, 5000);
    stream->copy_d2d_async(device + 5000, device, 5000);
    stream->copy_d2h_async(bytes + 5000, device + 5000, 5000);
    const Ticket ticket = stream->record(*event);
    stream->wait(ticket);
    static_cast<void>(ticket.done());
    ticket.wait_host();
    stream->check();
    if (bytes[9999] != 3) {
      outcome->harm(Harm::kWrongBatch, "a ticket was done and no error told, but nothing copied");
    }
    static_cast<void>(ticket.done());
    outcome->calm_at_last = cuda_emulated::faults_struck() == 0;
    stream->synchronize();
    outcome->calm_at_close = cuda_emulated::faults_struck() == 0;
  } catch (const std::exception& error) {
    outcome->fail("the parts", error.what());
  }
}

}  // namespace fastloader::testing
