"""Kernels that never ran on a machine like this one: a warning, or a check before their first use."""

from __future__ import annotations

import shlex
import warnings
from collections import Counter
from collections.abc import Mapping

from ..errors import TvmconvWarning, VerificationError
from ..problem import Problem
from .bundle import Bundle, Entry


def check_before_use(bundle: Bundle, entry: Entry, problem: Problem | None = None) -> None:
    """Compare a kernel with the reference, a family's at the extents of `problem`; raise VerificationError if it is wrong."""
    from .verify import KernelCheck, check_kernel

    answer = check_kernel(KernelCheck(bundle, entry, () if problem is None else (problem,)))
    if answer.wrong:
        raise VerificationError(
            f"the kernel for {entry.signature}, {entry.algorithm} for {entry.target} in {bundle.path}, is wrong on this"
            f" machine: {answer.wrong}; build it again here: tvmconv build {entry.signature} -o {shlex.quote(str(bundle.path))}"
        )


def warn_unverified(table: Mapping[str, tuple[Bundle, Entry]]) -> None:
    """Warn about the kernels in a table that never ran on a machine like this one."""
    paths = Counter(str(bundle.path) for bundle, entry in table.values() if entry.verified is None)
    for path, count in paths.items():
        warnings.warn(
            f"{count} of the kernels in {path} that this machine would use were never checked on one like it; check them"
            f" with: tvmconv verify {shlex.quote(path)}, or load with verify='first-use'",
            TvmconvWarning,
            stacklevel=5,
        )
