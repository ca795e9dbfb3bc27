#include <liburing.h>

// A shared object that needs what files are read with: links if the library can be part of one.
extern "C" int needs_liburing(io_uring* ring) {
  io_uring_probe* const probe = io_uring_get_probe();
  const int supported = probe != nullptr && io_uring_opcode_supported(probe, IORING_OP_OPENAT) != 0;
  io_uring_free_probe(probe);
  return supported + io_uring_queue_init(8, ring, 0) + io_uring_submit_and_wait(ring, 1);
}
