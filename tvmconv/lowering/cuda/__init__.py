"""Lower schedules for GPUs to libraries: CUDA C++, nvcc, the linker."""

from pathlib import Path

# CUDA C++ of kernels, and the launcher in C.
NATIVE = Path(__file__).with_name("native")
