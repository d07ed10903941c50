"""Models that commands make networks of."""
