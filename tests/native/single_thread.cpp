// Takes pthread_create's place in the tests that CMakeLists.txt lists as beginning no thread.

#include <cstdio>
#include <cstdlib>

#include <pthread.h>

extern "C" __attribute__((visibility("default"))) int pthread_create(pthread_t*,
                                                                     const pthread_attr_t*,
                                                                     void* (*)(void*), void*) {
  std::fputs("this test begins a thread: take it out of single_threaded in CMakeLists.txt\n",
             stderr);
  std::abort();
}
