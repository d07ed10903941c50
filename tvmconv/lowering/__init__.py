"""Lower schedules to libraries."""
