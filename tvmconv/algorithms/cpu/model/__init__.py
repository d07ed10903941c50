"""The cost model of CPUs."""
