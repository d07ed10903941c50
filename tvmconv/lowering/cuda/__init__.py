"""Lower schedules for GPUs to libraries: CUDA C++, nvcc, the linker."""
