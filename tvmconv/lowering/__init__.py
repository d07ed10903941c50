"""From a schedule to a library."""
