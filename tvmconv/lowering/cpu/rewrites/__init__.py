"""Rewrites of scheduled loops, one per file; `passes` has their order."""
