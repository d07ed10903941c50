"""Fewer operations: a network's fixed filters are joined where that costs less. One file a rule; `simplified` runs them all."""

from .rules import simplified as simplified
