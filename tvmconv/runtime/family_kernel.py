"""`FamilyKernel`: a family's kernel at the extents of one of its problems; `Families`: those of some bundles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ..family_text import parse_family
from ..problem import Problem
from ..signature import format_signature
from .bundle import Bundle, Entry
from .kernel import Kernel
from .library import BeforeUse
from .packed import PACK_SYMBOL
from .selection import obstacle, rank

_Check = Callable[[Bundle, Entry, Problem], object]


class FamilyKernel(Kernel):
    """A kernel for every problem of a family, at the extents of one.

    Parameters
    ----------
    bundle, entry
        The bundle, and the family's entry in it.
    problem
        A problem of the family.
    threads, before
        As of `tvmconv.Kernel`.

    Attributes
    ----------
    family : str
        The text of the family. All its kernels take the same packed filters.
    """

    def __init__(
        self,
        bundle: Bundle,
        entry: Entry,
        problem: Problem,
        threads: int | None = None,
        before: BeforeUse | None = None,
    ) -> None:
        super().__init__(bundle, replace(entry, signature=format_signature(problem)), threads, before, problem)
        self.family = entry.signature
        self._loaded: dict[tuple[str, bool], Callable[..., object]] = {}

    def at(self, problem: Problem) -> FamilyKernel:
        """Return the kernel of another problem of the family, with the same library."""
        entry = replace(self.info, signature=self.family)
        other = FamilyKernel(self._bundle, entry, problem, self._threads, self._before)
        other._loaded = self._loaded
        return other

    def _load(self, symbol: str, openmp: bool = False) -> Callable[..., object]:
        loaded = self._loaded.get((symbol, openmp))
        if loaded is None:
            loaded = self._loaded[symbol, openmp] = super()._load(symbol, openmp)
        function, pads = loaded, self.problem.pads_begin
        if symbol != PACK_SYMBOL:

            def function(*arrays: object) -> object:
                return loaded(*arrays, *pads)

        self._functions[symbol, openmp] = function
        return function

    def __getstate__(self) -> dict[str, Any]:
        """Copies in other processes load the library."""
        return {**super().__getstate__(), "_loaded": {}}


class Families:
    """The families of one or several bundles that this machine's CPU can run.

    Those that `tvmconv verify` found wrong are excluded. Among variants of one family, the most specific is taken.

    Parameters
    ----------
    bundles, threads
        As of `tvmconv.Registry`.
    check
        Called with the bundle, the family's entry and a problem before a family's library is first used.
    """

    def __init__(
        self,
        bundles: Sequence[Bundle],
        threads: int | None = None,
        check: _Check | None = None,
    ) -> None:
        self._threads, self._check = threads, check
        taken: dict[str, tuple[Bundle, Entry]] = {}
        for bundle in bundles:
            for entry in bundle.families:
                if entry.verified is False or obstacle(bundle.targets[entry.target]) is not None:
                    continue
                other = taken.get(entry.signature)
                if other is None or rank(bundle, entry) < rank(*other):
                    taken[entry.signature] = (bundle, entry)
        self.taken = taken
        self._families = {text: parse_family(text) for text in taken}
        self._kernels: dict[str, FamilyKernel] = {}

    def kernel(self, problem: Problem) -> FamilyKernel | None:
        """Return the kernel of the first family that has a problem; None if none has."""
        for text, family in self._families.items():
            if family.obstacle(problem) is None:
                kernel = self._kernels.get(text)
                if kernel is None:
                    kernel = self._kernels.setdefault(text, self._new(text, problem))
                return kernel.at(problem)
        return None

    def reasons(self, problem: Problem) -> list[str]:
        """Return why the families with a problem's channels, taps and types do not have it."""
        like = [(text, family) for text, family in self._families.items() if family.is_like(problem)]
        return [f"the family {text} does not serve it: {family.obstacle(problem)}" for text, family in like]

    def _new(self, text: str, problem: Problem) -> FamilyKernel:
        bundle, entry = self.taken[text]
        check = self._check if entry.verified is None else None
        before = partial(_check_family, check, entry, problem) if check else None
        return FamilyKernel(bundle, entry, problem, self._threads, before)


def _check_family(check: _Check, entry: Entry, problem: Problem, bundle: Bundle, _: Entry) -> None:
    """Check a family's kernel at the extents of one of its problems; a function of the module, so that kernels can be pickled."""
    check(bundle, entry, problem)
