"""The native module, devices, processors, memory, this process."""
