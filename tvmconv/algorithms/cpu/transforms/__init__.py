"""Winograd's transforms: tiles, plans and costs."""
