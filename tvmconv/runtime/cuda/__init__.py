"""Kernels and arrays on NVIDIA GPUs."""
