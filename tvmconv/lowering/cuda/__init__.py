"""Lower schedules for GPUs to libraries: CUDA C++, nvcc, the linker."""

from pathlib import Path

# Code in CUDA C++, and what launches kernels.
NATIVE = Path(__file__).with_name("native")
