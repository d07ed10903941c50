"""Tell problems whose output depends on data from those whose output is empty or the bias alone."""

from __future__ import annotations

from ..problem import Problem
from ..targets.target import Target


def covers_data(problem: Problem, target: Target) -> str | None:
    """Return None if the output depends on data, else say that it does not."""
    return "the output does not depend on data" if problem.is_constant or problem.is_empty else None


def covers_constant(problem: Problem, target: Target) -> str | None:
    """Return None if the output does not depend on data, else say that it does."""
    return "the output depends on data" if covers_data(problem, target) is None else None
