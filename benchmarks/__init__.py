"""Comparisons with other libraries. Not part of the installed package."""
