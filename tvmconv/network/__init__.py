"""Whole networks: read a model as a graph, rewrite it, compile its convolutions by our kernels, link one library."""
