"""Operators between kernels, as tensor expressions and calls of C functions."""
