"""Convolutions of fixed numbers as linear maps, which are added and composed: what frontends and networks join filters by."""
