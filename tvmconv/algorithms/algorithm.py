"""`Algorithm`: a row of the table of algorithms, with access to the modules of its definition and its schedules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..problem import Problem
from ..targets.target import Target
from .cpu.model.cost import Counts, cycles

if TYPE_CHECKING:
    from .definition import Definition


@dataclass(frozen=True)
class Algorithm:
    """An algorithm that computes problems.

    Its module in `tvmconv.algorithms.KIND` has ``covers``, ``define`` and ``estimate``, and may have ``define_prepacked`` (another
    definition for prepacked filters), ``plain`` (an estimate for plain filters) and ``filter_bytes`` (for prepacked filters of
    another size). Each takes a problem, a target of the algorithm's kind, and `options`. Modules import TVM, so they are imported
    on first use.

    Attributes
    ----------
    name
        Its name in records and manifests.
    version
        Version of the definition and its space; records of older versions do not apply.
    numerical_class
        ``"exact"``: only the order of the sum differs from the formula. ``"tf32"``: factors are rounded to TF32 (11
        bits) first. ``"transform"``: sums of transformed or split numbers.
    module
        Name of its module.
    options
        Keyword arguments for the functions of a module that several algorithms share.
    schedules
        Name of the module in `tvmconv.schedules.KIND` whose ``space(sch, definition, target)`` returns the sketches, the
        default first, each with its default decisions sampled. Empty: as `module`, or `space` in a module that is a folder.
    kind
        Kind of the targets that it is for.
    is_default
        Whether it may be the default. Algorithms that may not are ordered after those that may, whatever the estimates.
    integers
        Whether it also computes problems with integers.
    """

    name: str
    version: int
    numerical_class: str
    module: str
    options: Mapping[str, Any] = field(default_factory=dict)
    schedules: str = ""
    kind: str = "cpu"
    is_default: bool = True
    integers: bool = False

    @property
    def ordered(self) -> bool:
        """Return whether its sums add their products in the same order on every CPU."""
        return bool(self.options.get("ordered"))

    def covers(self, problem: Problem, target: Target) -> str | None:
        """Return None if the algorithm computes `problem` on `target`, else the reason why not."""
        if problem.is_quantized and not self.integers:
            return f"it multiplies floating-point numbers, not {problem.dtype}"
        reason: str | None = self._module().covers(problem, target, **self.options)
        return reason

    def cycles(self, problem: Problem, target: Target) -> float:
        """Return the estimated cycles of one core, or GPU multiprocessor, for a covered problem."""
        return cycles(self.estimate(problem, target), target)

    def estimate(self, problem: Problem, target: Target) -> Counts:
        """Return the counts of events for a covered problem, by the names of their coefficients; for a GPU the cycles."""
        return _count(self._module(), tuple(self.options.items()), problem, target)

    def plain_cycles(self, problem: Problem, target: Target) -> float | None:
        """Return the estimated cycles with a plain filter; None if the algorithm has no such estimate."""
        plain = getattr(self._module(), "plain", None)
        return None if plain is None else cycles(plain(problem, target, **self.options), target)

    def filter_bytes(self, problem: Problem, target: Target) -> int:
        """Return the bytes of the filter that a call reads, prepacked where that is possible."""
        own = getattr(self._module(), "filter_bytes", None)
        return problem.filter_bytes if own is None else own(problem, target, **self.options)

    def define(self, problem: Problem, target: Target) -> Definition:
        """Return the unscheduled definition."""
        definition: Definition = self._module().define(problem, target, **self.options)
        return definition

    def define_prepacked(self, problem: Problem, target: Target) -> Definition | None:
        """Return the definition for prepacked filters if it differs from `define`'s; else None.

        The space makes equally many choices for both. Decisions other than the default are positions among the options of
        each; a schedule whose position is beyond the options of one does not replay.
        """
        define = getattr(self._module(), "define_prepacked", None)
        return None if define is None else define(problem, target, **self.options)

    def sketches(self, definition: Definition, target: Target) -> list[Any]:
        """Return the scheduled sketches (``tvm.s_tir.Schedule``) of a definition, the default first."""
        from tvm.s_tir import Schedule

        own = f"{self._module().__name__}.space" if hasattr(self._module(), "__path__") else ""
        space = import_module(own or f"tvmconv.schedules.{self.kind}.{self.schedules or self.module}").space
        # The seed has no effect on default decisions; a fixed one keeps schedules reproducible.
        return list(space(Schedule(definition.func, seed=1), definition, target))

    def default_sketch(self, definition: Definition, target: Target) -> Any:
        """Return the first of `sketches`; where sketches are a window's plans, the others are not scheduled."""
        for first in definition.windows[:1]:
            if getattr(first, "plans", None):
                windows = [replace(first, plans=first.plans[:1]), *definition.windows[1:]]
                definition = replace(definition, windows=windows)
        return self.sketches(definition, target)[0]

    def _module(self) -> Any:
        return import_module(f"{__package__}.{self.kind}.{self.module}")


@lru_cache(maxsize=4096)  # all layers of some networks: for choices, transfers and explanations
def _count(module: ModuleType, options: tuple[tuple[str, Any], ...], problem: Problem, target: Target) -> Counts:
    counts: Counts = module.estimate(problem, target, **dict(options))
    return counts
