"""Algorithms that compute Problems: coverage, cost estimates and tensor expressions."""
