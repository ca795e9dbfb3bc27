#pragma once

#include <cstddef>
#include <string>

namespace fastloader {

/// The NUMA node of a PCI device ("0000:1A:00.0", as CUDA writes it), from sysfs; -1 when the
/// kernel does not know or there is only one.
int numa_node_of_pci_device(std::string bus_id);

/// Asks for the pages of a mapping not touched so far to come from `node`, as far as it has any.
/// Nothing for -1. A refusal (containers forbid the call) costs speed, never correctness.
void prefer_numa_node(void* data, size_t bytes, int node) noexcept;

}  // namespace fastloader
