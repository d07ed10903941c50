"""Rewrites of parallel loops over tasks: cut further, sharing threads, or in one thread."""
