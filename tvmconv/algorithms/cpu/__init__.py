"""The algorithms for CPUs."""
