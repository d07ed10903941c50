"""Join a network's fixed filters where that costs less. Each file is a rule; `join_filters` runs them all."""

from .rules import join_filters as join_filters
