"""Hypothesis draws the same examples in every run, so that a failure is a change of the code."""

from __future__ import annotations

import pytest
from hypothesis import settings

settings.register_profile("fixed", derandomize=True, deadline=None, database=None, print_blob=True)
settings.load_profile("fixed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files of scheduled IR again")
