// Captures of a stream into a graph: what enters one, what is refused, what ruins it.

#include <thread>

#include "emulator_test.h"

namespace fastloader::testing {
namespace {

cudaError_t end_capture(cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  return cudaStreamEndCapture(stream, &graph);
}

TEST(captured_work_is_not_carried_out) {
  const Clean clean;
  const RawStream stream;
  bool ran = false;
  EXPECT(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
  EXPECT(cudaLaunchHostFunc(
             stream, [](void* data) { *static_cast<bool*>(data) = true; }, &ran) == cudaSuccess);
  EXPECT(end_capture(stream) == cudaSuccess);
  EXPECT(cudaStreamSynchronize(stream) == cudaSuccess);
  EXPECT(!ran);
}

TEST(an_unsafe_call_of_another_thread_ruins_a_global_capture) {
  const Clean clean;
  const RawStream stream;
  EXPECT(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
  cudaError_t answered = cudaSuccess;
  std::thread([&] {
    cudaSetDevice(0);
    void* block = nullptr;
    answered = cudaMalloc(&block, 100);
  }).join();
  EXPECT(answered == cudaErrorStreamCaptureUnsupported);
  EXPECT(end_capture(stream) == cudaErrorStreamCaptureInvalidated);
}

TEST(a_relaxed_thread_ruins_no_capture) {
  const Clean clean;
  const RawStream stream;
  EXPECT(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
  std::thread([&] {
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaSetDevice(0);
    EXPECT(cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess);
    EXPECT(mode == cudaStreamCaptureModeGlobal);
    const RawBlock block(100);
  }).join();
  EXPECT(end_capture(stream) == cudaSuccess);
}

TEST(a_thread_local_capture_does_not_bind_other_threads) {
  const Clean clean;
  const RawStream stream;
  EXPECT(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  std::thread([] {
    cudaSetDevice(0);
    const RawBlock block(100);
  }).join();
  void* block = nullptr;
  EXPECT(cudaMalloc(&block, 100) == cudaErrorStreamCaptureUnsupported);
  EXPECT(end_capture(stream) == cudaErrorStreamCaptureInvalidated);
}

TEST(a_wait_for_a_captured_record_draws_the_stream_in) {
  const Clean clean;
  const RawStream origin;
  const RawStream other;
  const RawEvent event;
  EXPECT(cudaStreamBeginCapture(origin, cudaStreamCaptureModeGlobal) == cudaSuccess);
  EXPECT(cudaEventRecord(event, origin) == cudaSuccess);
  EXPECT(cudaStreamWaitEvent(other, event, 0) == cudaSuccess);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  EXPECT(cudaStreamIsCapturing(other, &status) == cudaSuccess);
  EXPECT(status == cudaStreamCaptureStatusActive);
  EXPECT(end_capture(origin) == cudaErrorStreamCaptureUnjoined);
  EXPECT(cudaStreamIsCapturing(other, &status) == cudaSuccess);
  EXPECT(status == cudaStreamCaptureStatusNone);
}

TEST(a_stream_that_joins_again_is_no_error) {
  const Clean clean;
  const RawStream origin;
  const RawStream other;
  const RawEvent fork;
  const RawEvent join;
  EXPECT(cudaStreamBeginCapture(origin, cudaStreamCaptureModeGlobal) == cudaSuccess);
  EXPECT(cudaEventRecord(fork, origin) == cudaSuccess);
  EXPECT(cudaStreamWaitEvent(other, fork, 0) == cudaSuccess);
  EXPECT(cudaEventRecord(join, other) == cudaSuccess);
  EXPECT(cudaStreamWaitEvent(origin, join, 0) == cudaSuccess);
  EXPECT(end_capture(origin) == cudaSuccess);
}

TEST(a_wait_for_work_outside_ruins_a_capture) {
  const Clean clean;
  const RawStream origin;
  const RawStream other;
  const RawEvent event;
  EXPECT(cudaEventRecord(event, other) == cudaSuccess);
  EXPECT(cudaStreamBeginCapture(origin, cudaStreamCaptureModeGlobal) == cudaSuccess);
  EXPECT(cudaStreamWaitEvent(origin, event, 0) == cudaErrorStreamCaptureIsolation);
  EXPECT(end_capture(origin) == cudaErrorStreamCaptureInvalidated);
}

TEST(a_captured_record_cannot_be_asked_for) {
  const Clean clean;
  const RawStream origin;
  const RawEvent event;
  EXPECT(cudaStreamBeginCapture(origin, cudaStreamCaptureModeRelaxed) == cudaSuccess);
  EXPECT(cudaEventRecord(event, origin) == cudaSuccess);
  EXPECT(cudaEventQuery(event) == cudaErrorCapturedEvent);
  EXPECT(end_capture(origin) == cudaErrorStreamCaptureInvalidated);
}

TEST(the_legacy_stream_is_refused_while_a_blocking_stream_is_captured) {
  const Clean clean;
  const RawStream blocking(cudaStreamDefault);
  const RawEvent event;
  EXPECT(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeRelaxed) == cudaSuccess);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  EXPECT(cudaStreamIsCapturing(cudaStreamLegacy, &status) == cudaErrorStreamCaptureImplicit);
  EXPECT(cudaEventRecord(event, cudaStreamLegacy) == cudaErrorStreamCaptureImplicit);
  EXPECT(end_capture(blocking) == cudaErrorStreamCaptureInvalidated);
}

}  // namespace
}  // namespace fastloader::testing

int main(int argc, char** argv) { return fastloader::testing::run_all_tests(argc, argv); }
