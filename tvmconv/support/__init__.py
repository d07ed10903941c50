"""Atomically written files, and processes: helpers for all other packages."""
