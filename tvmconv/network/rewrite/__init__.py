"""Rewrites of the graph, before kernels are chosen."""
