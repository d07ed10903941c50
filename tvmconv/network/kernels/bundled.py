"""The kernels that a bundle has for a network, to be called by it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import TargetError, UnsupportedMachineError
from ...fills import numpy_dtype
from ...isa.machine import missing_features
from ...problem import Problem
from ...runtime.bundle import Bundle, Entry, read_bundle
from ...runtime.kernel import Kernel
from ...runtime.selection import rank
from ...runtime.unverified import warn_unverified
from ...signature import format_signature
from ...targets.target import Target
from ..ir.problem_of import plain_filter
from .calls import function_name

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class BundledKernel:
    """A problem's kernel in a bundle.

    Attributes
    ----------
    problem
        What it computes.
    bundle, entry
        Where it is.
    """

    problem: Problem
    bundle: Bundle
    entry: Entry

    @property
    def algorithm(self) -> str:
        """As the manifest says."""
        return self.entry.algorithm

    @property
    def origin(self) -> str:
        """As the manifest says."""
        return self.entry.origin

    @property
    def function(self) -> str:
        """The name that the network calls it by."""
        return function_name(self.entry)

    @property
    def library(self) -> str:
        """Its file, from the bundle's folder."""
        return self.entry.file

    def packed(self, filter_: npt.NDArray[np.float64]) -> Array:
        """Return a filter, whose axes are OIX, as the function takes it.

        Raises
        ------
        UnsupportedMachineError
            If this machine cannot run the kernel's own code, which packs the filter.
        BundleError
            If the library is missing, altered, or cannot be loaded.
        """
        plain = plain_filter(filter_, self.problem)
        if self.entry.packed_filter is None:
            return plain
        if missing := missing_features(self.bundle.targets[self.entry.target].features):
            raise UnsupportedMachineError(
                f"the kernels of {self.bundle.path} pack filters by code for {self.entry.target}; this machine's CPU lacks"
                f" {', '.join(missing)}: compile the network on a machine that has them, or without the bundle"
            )
        return Kernel(self.bundle, self.entry).pack(plain.view(numpy_dtype(self.problem.dtype))).array  # type: ignore[union-attr]


def bundled_kernels(
    problems: Iterable[Problem], path: str | os.PathLike[str], target: str, math: str
) -> dict[Problem, BundledKernel]:
    """Return the kernels of a bundle for problems, the best that code for a target may call; what it lacks is left out.

    Raises
    ------
    BundleError
        If there is no bundle, or its manifest is damaged.
    TargetError
        If all its kernels use features that the target lacks.
    """
    bundle, known = read_bundle(path), Target.parse(target)
    cpus = {name: each for name, each in bundle.targets.items() if each.kind == known.kind}
    usable = {name for name, each in cpus.items() if set(each.features) <= set(known.features)}
    if not usable:
        has = "; ".join(
            f"for {name}, which uses {', '.join(sorted(set(each.features) - set(known.features)))}"
            for name, each in cpus.items()
        )
        raise TargetError(
            f"{bundle.path} has no kernel that a network for {known.name} may call, it is {has or 'for GPUs alone'}; build it"
            f" again: tvmconv build SOURCE --target {target} -o {shlex.quote(str(bundle.path))}"
        )
    taken: dict[str, Entry] = {}
    for entry in sorted(bundle.entries, key=lambda entry: rank(bundle, entry)):
        right = entry.verified is not False and (math != "strict" or entry.numerical_class == "exact")
        if entry.target in usable and right:
            taken.setdefault(entry.signature, entry)
    found = {problem: taken.get(format_signature(problem)) for problem in problems}
    kernels = {problem: BundledKernel(problem, bundle, entry) for problem, entry in found.items() if entry}
    warn_unverified({entry.signature: (bundle, entry) for entry in found.values() if entry})
    return kernels
