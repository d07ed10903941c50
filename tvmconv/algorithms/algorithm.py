"""`Algorithm`: one way to compute problems, whose definition and schedules are modules of their own."""

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
    """A way to compute problems.

    Its module in `tvmconv.algorithms.KIND` has ``covers``, ``define`` and ``estimate``, ``define_prepacked`` where
    prepacked filters deserve another definition, ``plain`` where it counts what plain filters take, and ``filter_bytes`` where a prepacked filter is larger than a plain one. Each takes a problem, a target of the algorithm's kind, and
    `options`. Modules import TVM, so they are imported when they are asked.

    Attributes
    ----------
    name
        What records and manifests call it.
    version
        Of the definition and its space. Raising it makes older records a miss.
    numerical_class
        ``"exact"``: only the order of the sum differs from the formula. ``"tf32"``: factors are rounded to TF32 (11
        bits) before. ``"transform"``: more than that.
    module
        Name of its module.
    options
        Keyword arguments of the module's functions, where several algorithms share it.
    schedules
        Name of the module in `tvmconv.schedules.KIND` whose ``space(sch, definition, target)`` returns the sketches, the
        default first; each sketch's sampled decisions are the defaults. Absent: that of `module`; of a module that is a
        folder, its own `space`.
    kind
        The kind of targets it is for.
    is_default
        Whether it may be the default. Others come after all that may, whatever they cost by estimate.
    integers
        Whether it computes problems with integers, too.
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
        """Return whether each of its sums takes its products in one order, the same on every CPU."""
        return bool(self.options.get("ordered"))

    def covers(self, problem: Problem, target: Target) -> str | None:
        """Return None if it can compute `problem`, else why not."""
        if problem.is_quantized and not self.integers:
            return f"it multiplies floating-point numbers, not {problem.dtype}"
        reason: str | None = self._module().covers(problem, target, **self.options)
        return reason

    def cycles(self, problem: Problem, target: Target) -> float:
        """Return by estimate how many cycles of one core, or GPU multiprocessor, a problem that it covers takes."""
        return cycles(self.estimate(problem, target), target)

    def estimate(self, problem: Problem, target: Target) -> Counts:
        """Return the events of a problem that it covers, by the names of their coefficients; for a GPU its cycles."""
        return _count(self._module(), tuple(self.options.items()), problem, target)

    def plain_cycles(self, problem: Problem, target: Target) -> float | None:
        """Return the estimated cycles of a problem with a plain filter; None if the algorithm does not estimate them."""
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
        """Return the definition for prepacked filters, if it is another than `define` gives; else None.

        The space makes as many choices for both. Other decisions than the default's are taken by their positions among the
        options of each: where one has fewer, a schedule that needs more does not replay.
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
        """Return the first of `sketches`, without the others where a window's plans say how many there are."""
        for first in definition.windows[:1]:
            if getattr(first, "plans", None):
                windows = [replace(first, plans=first.plans[:1]), *definition.windows[1:]]
                definition = replace(definition, windows=windows)
        return self.sketches(definition, target)[0]

    def _module(self) -> Any:
        return import_module(f"{__package__}.{self.kind}.{self.module}")


@lru_cache(maxsize=4096)  # of all layers of some networks: asked for to choose, for transfers, and again to say why
def _count(module: ModuleType, options: tuple[tuple[str, Any], ...], problem: Problem, target: Target) -> Counts:
    counts: Counts = module.estimate(problem, target, **dict(options))
    return counts
