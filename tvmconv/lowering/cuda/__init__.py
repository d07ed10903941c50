"""From a schedule for a GPU to a library: CUDA C++, nvcc, the linker."""
