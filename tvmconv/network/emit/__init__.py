"""Emit a network: the plan of steps and memory, and the library."""
