"""An interpreter for the PTX that nvcc emits: all threads of a grid at once, as numpy arrays."""
