#pragma once

#include <pybind11/pybind11.h>

#include <string>

// One function per theme, each in the file of its name; module.cpp calls them all.
namespace fastloader::bindings {

/// Text that may hold a path, whose bytes need not be UTF-8: as os.fsdecode does it.
pybind11::str path_text(const std::string& text);

void register_pixels(pybind11::module_& module);
void register_pictures(pybind11::module_& module);
void register_memory(pybind11::module_& module);
void register_prefetcher(pybind11::module_& module);
void register_sources(pybind11::module_& module);
void register_image_job(pybind11::module_& module);
void register_decode_pool(pybind11::module_& module);

}  // namespace fastloader::bindings
