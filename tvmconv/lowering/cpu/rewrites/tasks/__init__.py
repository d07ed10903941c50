"""Rewrites of parallel loops over tasks: cut finer, merged, or serial."""
