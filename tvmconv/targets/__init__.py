"""Targets: the CPUs and GPUs that kernels are compiled for."""
