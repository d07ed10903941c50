"""Whole networks: a model read as a graph, rewritten, its convolutions by our kernels, one library."""
