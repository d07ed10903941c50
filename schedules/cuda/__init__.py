"""Search spaces for NVIDIA GPUs."""
