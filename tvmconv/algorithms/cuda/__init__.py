"""The algorithms for NVIDIA GPUs."""
