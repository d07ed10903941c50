"""Decide which algorithm and schedule a problem gets, and why."""
