#pragma once

#include <pybind11/pybind11.h>

#include <string>

// One function per noun, each in the file of its name; module.cpp calls them all.
namespace fastloader::bindings {

/// Text that may hold a path, whose bytes need not be UTF-8: as os.fsdecode does it.
pybind11::str path_text(const std::string& text);

void register_errors(pybind11::module_& module);
void register_normalize(pybind11::module_& module);
void register_jpeg_scans(pybind11::module_& module);
void register_image_stages(pybind11::module_& module);
void register_operations(pybind11::module_& module);
void register_recipe(pybind11::module_& module);
void register_device_stages(pybind11::module_& module);
void register_buffer_pool(pybind11::module_& module);
void register_batch_layout(pybind11::module_& module);
void register_prefetcher(pybind11::module_& module);
void register_gather(pybind11::module_& module);
void register_sources(pybind11::module_& module);
void register_seek_indices(pybind11::module_& module);
void register_image_job(pybind11::module_& module);
void register_decode_pool(pybind11::module_& module);
void register_shared_slots(pybind11::module_& module);
void register_tar(pybind11::module_& module);
void register_trace(pybind11::module_& module);
void register_build_info(pybind11::module_& module);

}  // namespace fastloader::bindings
