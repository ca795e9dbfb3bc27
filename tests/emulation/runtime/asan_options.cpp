// Linked into each program that uses the emulated runtime. That library has an operator new of its
// own, so that tests can count the program's; what it returns to a test is deleted by the
// program's. AddressSanitizer looks for this function from its own library, so it must be visible.
extern "C" __attribute__((visibility("default"))) const char* __asan_default_options() {
  return "alloc_dealloc_mismatch=0";
}
