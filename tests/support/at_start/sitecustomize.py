"""Python imports this at its start. The programs that a test starts then run on the emulated CUDA
runtime, too, if the test's way says so in the environment."""

import emulated_cuda

emulated_cuda.install()
