#include "backend/cuda/numa.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cctype>
#include <climits>
#include <fstream>

namespace fastloader {

int numa_node_of_pci_device(std::string bus_id) {
  for (char& c : bus_id) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  std::ifstream file("/sys/bus/pci/devices/" + bus_id + "/numa_node");
  int node = -1;
  return file >> node ? node : -1;
}

void prefer_numa_node(void* data, size_t bytes, int node) noexcept {
  constexpr int kBits = sizeof(unsigned long) * CHAR_BIT;
  constexpr int kNodes = 1024;
  if (node < 0 || node >= kNodes) return;
  unsigned long nodes[kNodes / kBits] = {};
  nodes[node / kBits] = 1ul << (node % kBits);
  // The raw call: libnuma would be one more library to find. The kernel reads one bit less than it
  // is told of.
  syscall(SYS_mbind, data, bytes, MPOL_PREFERRED, nodes, static_cast<unsigned long>(kNodes) + 1, 0);
}

}  // namespace fastloader
