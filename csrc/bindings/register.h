#pragma once

#include <pybind11/pybind11.h>

#include <string>

// One function per theme, each in the file of its name; module.cpp calls them all.
namespace fastloader::bindings {

/// Text that may hold a path, whose bytes need not be UTF-8: as os.fsdecode does it.
pybind11::str path_text(const std::string& text);

/// What is done to pixels: normalising, operations, recipes.
void register_pixels(pybind11::module_& module);
/// Encoded pictures: what a JPEG is made of, its seek index, decoding and resizing step by step.
void register_pictures(pybind11::module_& module);
/// Where batches lie: tensors over our memory, pools, slots that processes share.
void register_memory(pybind11::module_& module);
/// The ring, and what comes into it.
void register_prefetcher(pybind11::module_& module);
/// Where samples come from: stores of pictures, members of a tar, rows of arrays.
void register_sources(pybind11::module_& module);
/// What one loader wants of its pictures.
void register_image_job(pybind11::module_& module);
/// Batches of pictures in the making.
void register_decode_pool(pybind11::module_& module);

}  // namespace fastloader::bindings
