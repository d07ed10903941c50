"""Hypothesis draws the same examples in every run, so that a failure is a change of the code."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("fixed", derandomize=True, deadline=None, database=None, print_blob=True)
settings.load_profile("fixed")
