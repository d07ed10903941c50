"""Search spaces for CPUs."""
