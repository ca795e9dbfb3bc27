"""The machine: the native module, devices, processors, memory, this process."""
