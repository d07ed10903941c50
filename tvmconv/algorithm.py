"""`Algorithm`: a way to compute problems, and where its schedules are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .definitions.winograd_cost import direct_cycles
from .problem import Problem
from .target import Target

if TYPE_CHECKING:
    from .definitions.definition import Definition


def always(problem: Problem, target: Target) -> bool:
    """Prefer an algorithm for all problems that it covers."""
    return True


def _as_defined(problem: Problem, target: Target) -> None:
    """Return None: a filter packed ahead changes nothing."""


@dataclass(frozen=True)
class Algorithm:
    """One way to compute problems.

    Attributes
    ----------
    name
        What records and manifests call it.
    version
        Of the definition and its space. Raising it makes older records a miss.
    numerical_class
        ``"exact"``: only the order of the sum differs from the formula. ``"tf32"``: factors are rounded to TF32 (11
        bits) before. ``"transform"``: more than that.
    covers
        ``covers(problem, target)`` is None if it can compute the problem, else why not.
    prefers
        ``prefers(problem, target)``: whether it comes before the algorithms that do not say so.
    define
        ``define(problem, target)`` returns the unscheduled Definition.
    schedules
        Name of the module in `tvmconv.schedules` whose ``space(sch, definition, target)`` returns the sketches,
        the default first; each sketch's sampled decisions are the defaults.
    cycles
        ``cycles(problem, target)`` estimates what a problem that it covers costs, to compare algorithms without
        measuring.
    kind
        The kind of targets it is for; the functions above are called with such a target only.
    ahead
        ``ahead(problem, target)`` returns the Definition for filters packed ahead, if it is another than `define`
        gives and that one reads the filter in place; else None. The space has the same choices for both.
    """

    name: str
    version: int
    numerical_class: str
    covers: Callable[[Problem, Any], str | None]
    prefers: Callable[[Problem, Any], bool]
    define: Callable[[Problem, Any], Definition]
    schedules: str
    cycles: Callable[[Problem, Any], float] = direct_cycles
    kind: str = "cpu"
    ahead: Callable[[Problem, Any], Definition | None] = _as_defined

    def sketches(self, definition: Definition, target: Target) -> list[Any]:
        """Return the scheduled sketches (``tvm.s_tir.Schedule``) of a definition, the default first."""
        from tvm.s_tir import Schedule

        space = import_module(f"tvmconv.schedules.{self.schedules}").space
        # The seed has no effect on default decisions; a fixed one keeps schedules reproducible.
        return list(space(Schedule(definition.func, seed=1), definition, target))
