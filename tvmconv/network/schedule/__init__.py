"""Schedules of the functions between kernels."""
