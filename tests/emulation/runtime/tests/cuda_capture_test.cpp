// The user's graph captures and the CUDA backend leave each other alone.

#include <thread>

#include "base/error.h"
#include "emulator_test.h"
#include "epoch.h"

namespace fastloader::testing {
namespace {

Backend& cuda() { return open_or_skip("cuda"); }

/// A stream of the training loop that is being captured.
class Capture {
 public:
  explicit Capture(cudaStream_t stream, cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal)
      : stream_(stream) {
    EXPECT(cudaStreamBeginCapture(stream, mode) == cudaSuccess);
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  ~Capture() {
    if (!ended_) end();
  }
  cudaError_t end() {
    ended_ = true;
    cudaGraph_t graph = nullptr;
    return cudaStreamEndCapture(stream_, &graph);
  }

 private:
  const cudaStream_t stream_;
  bool ended_ = false;
};

bool drawn_in() {
  for (const std::string& note : cuda_emulated::notes()) {
    if (note.find("drew stream") != std::string::npos) return true;
  }
  return false;
}

TEST(a_capture_elsewhere_survives_a_whole_epoch) {
  const Clean clean;
  const RawStream training;
  Capture capture(training);
  std::thread([] {
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;  // the consumer's own calls
    cudaThreadExchangeStreamCaptureMode(&mode);
    const ConsumerStream stream(0);
    run_epoch(cuda(), 0, {plain_batch({1000, 300}, 1), image_batch(2)}, 9, stream);
  }).join();
  EXPECT(capture.end() == cudaSuccess);
}

TEST(what_a_thread_makes_and_drops_ruins_no_capture_elsewhere) {
  const Clean clean;
  const RawStream training;
  Capture capture(training);
  std::thread([] {  // never attached, so the guards do it
    const auto stream = cuda().create_stream(0);
    const auto event = cuda().create_event(0);
    const auto host = cuda().allocate_host(0, 4096);
    const auto block = cuda().allocate_device(0, 4096);
    stream->copy_h2d_async(block->data(), host->data(), 4096);
    const Ticket ticket = stream->record(*event);
    ticket.done();
    ticket.wait_host();
    stream->synchronize();
  })
      .join();
  EXPECT(capture.end() == cudaSuccess);
}

TEST(a_wait_on_a_captured_stream_is_made_by_the_host) {
  const Clean clean;
  const auto side = cuda().create_stream(0);
  const auto event = cuda().create_event(0);
  const RawStream training;
  const auto wrapped = cuda().wrap_external(0, training.handle());
  Capture capture(training);
  wrapped->wait(side->record(*event));
  wrapped->check();
  EXPECT(capture.end() == cudaSuccess);
}

TEST(a_record_on_a_captured_stream_is_refused_and_draws_nothing_in) {
  const Clean clean;
  const auto side = cuda().create_stream(0);
  const auto event = cuda().create_event(0);
  const RawStream training;
  const auto wrapped = cuda().wrap_external(0, training.handle());
  Capture capture(training);
  EXPECT_THROW(side->wait(wrapped->record(*event)), InvalidArgument, "captured");
  EXPECT(capture.end() == cudaSuccess);
  EXPECT(!drawn_in());
  side->synchronize();
  wrapped->check();  // it is the caller's mistake, not the stream's
}

TEST(the_default_stream_is_refused_while_a_capture_depends_on_it) {
  const Clean clean;
  const auto side = cuda().create_stream(0);
  const auto event = cuda().create_event(0);
  const auto behind = cuda().create_event(0);
  const RawStream training(cudaStreamDefault);
  const auto standard = cuda().wrap_external(0, 0);
  Capture capture(training, cudaStreamCaptureModeRelaxed);
  standard->wait(side->record(*event));
  standard->check();
  EXPECT_THROW(standard->record(*behind), InvalidArgument, "captured");
  EXPECT(capture.end() == cudaSuccess);
}

}  // namespace
}  // namespace fastloader::testing

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
