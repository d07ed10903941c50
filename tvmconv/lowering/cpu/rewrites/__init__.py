"""Rewrites of scheduled loops, one a file; `passes` has their order."""
