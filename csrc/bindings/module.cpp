#include "bindings/register.h"
#include "image/jpeg/libjpeg/decoder.h"

PYBIND11_MODULE(_native, module) {
  namespace bindings = fastloader::bindings;
  module.doc() = "Native engine of fastloader. Private: use the names in `fastloader`.";
  module.attr("__version__") = FASTLOADER_VERSION;
#ifdef FASTLOADER_TEST_HOOKS
  module.attr("__test_hooks__") = true;
#else
  module.attr("__test_hooks__") = false;
#endif
  module.attr("__libjpeg__") = fastloader::LibjpegDecoder::available();
  bindings::register_errors(module);
  bindings::register_normalize(module);
  bindings::register_jpeg_scans(module);
  bindings::register_image_stages(module);
  bindings::register_operations(module);
  bindings::register_recipe(module);
  bindings::register_device_stages(module);
  bindings::register_buffer_pool(module);
  bindings::register_batch_layout(module);
  bindings::register_prefetcher(module);
  bindings::register_sources(module);
  bindings::register_seek_indices(module);
  bindings::register_image_job(module);
  bindings::register_decode_pool(module);
  bindings::register_gather(module);
  bindings::register_shared_slots(module);
  bindings::register_tar(module);
  bindings::register_trace(module);
  bindings::register_build_info(module);
}
