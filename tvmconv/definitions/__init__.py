"""The tensor expressions of the algorithms."""
