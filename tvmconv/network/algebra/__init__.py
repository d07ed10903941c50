"""Fewer operations: a network's fixed filters are joined where that costs less. One file a rule; `join_filters` runs them all."""

from .rules import join_filters as join_filters
