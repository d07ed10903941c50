"""Measure the time of kernels, and the speed of machines."""
