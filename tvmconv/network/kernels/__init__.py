"""Replace convolutions and products of the graph by our kernels."""
