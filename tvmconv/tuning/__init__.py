"""The search for the fastest schedule, and its records."""
