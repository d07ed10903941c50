"""Check the kernels of a bundle against the reference."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .bundle import Bundle, Entry, read_bundle
from .cpu import cpu_features
from .errors import TvmconvError, UnsupportedMachineError
from .fills import exact_case
from .library import open_library
from .measure import difference
from .sandbox import Sandbox
from .signature import parse_signature

# A kernel that takes this much longer than the reference hangs.
LEAST_SECONDS = 120.0
LEAST_FLOPS = 1e7


@dataclass(frozen=True)
class Answer:
    """How a kernel's answer compares with the reference.

    Attributes
    ----------
    measure, value
        ``"exact"`` and 0, or ``"relative_l2"`` and that error, for transforms.
    wrong
        What is wrong with it; empty if nothing is.
    """

    measure: str
    value: float
    wrong: str


@dataclass(frozen=True)
class Check:
    """Check the library `path` that `entry` describes."""

    entry: Entry
    path: str

    def __str__(self) -> str:
        return f"checking {self.entry.signature} for {self.entry.target}"


@dataclass(frozen=True)
class Verdict:
    """What checking one entry of a bundle found.

    Attributes
    ----------
    signature, target, algorithm
        The entry.
    status
        ``"right"``, ``"wrong"``, or ``"skipped"`` when this machine cannot run it.
    detail
        What is wrong, or why it was skipped.
    """

    signature: str
    target: str
    algorithm: str
    status: str
    detail: str = ""


def verify(path: str | os.PathLike[str], progress: Callable[[int, int, str], None] | None = None) -> list[Verdict]:
    """Check every entry of the bundle at `path` with inputs for which there is one right answer.

    The kernels run in a process of their own: one that crashes or hangs is wrong, and the others are still checked.

    Parameters
    ----------
    path
        The bundle's folder.
    progress
        Called as ``progress(done, total, what)``.

    Returns
    -------
    list of Verdict
        One an entry, in the bundle's order.

    Raises
    ------
    BundleError
        If there is no bundle, or its manifest is damaged.
    UnsupportedMachineError
        If this machine can run none of its kernels.
    """
    bundle = read_bundle(path)
    verdicts: list[Verdict] = []
    sandbox = Sandbox(check_library, threads=len(os.sched_getaffinity(0)))
    try:
        for entry in bundle.entries:
            if progress is not None:
                progress(len(verdicts), len(bundle.entries), entry.signature)
            status, detail = _status(bundle, entry, sandbox)
            verdicts.append(Verdict(entry.signature, entry.target, entry.algorithm, status, detail))
    finally:
        sandbox.close()
    if verdicts and all(verdict.status == "skipped" for verdict in verdicts):
        raise UnsupportedMachineError(
            f"{bundle.path}: nothing was checked, because this machine can run none of its kernels; {verdicts[0].detail}"
        )
    return verdicts


def missing_features(bundle: Bundle, entry: Entry) -> list[str]:
    """Return the CPU features that `entry` needs and this machine lacks."""
    return sorted(set(bundle.targets[entry.target].features) - cpu_features())


def check_library(check: Check) -> Answer:
    """Run a library on an exact fill and compare its output with the reference."""
    entry = check.entry
    problem = parse_signature(entry.signature)
    arrays, expected = exact_case(problem)
    call = open_library(check.path, entry.symbol, problem, arrays)
    call.run()
    wrong = difference(call.output, expected, entry.numerical_class, problem.dtype)
    if entry.numerical_class == "exact":
        return Answer("exact", 0.0, wrong)
    return Answer("relative_l2", _relative_error(call.output, expected), wrong)


def _status(bundle: Bundle, entry: Entry, sandbox: Sandbox[Check, Answer]) -> tuple[str, str]:
    missing = missing_features(bundle, entry)
    if missing:
        return "skipped", f"this CPU lacks {', '.join(missing)}"
    try:
        flops = parse_signature(entry.signature).flops
        check = Check(entry, str(bundle.library(entry)))
        wrong = sandbox.call(check, LEAST_SECONDS + flops / LEAST_FLOPS).wrong
    except TvmconvError as error:
        return "wrong", str(error)
    return ("wrong", wrong) if wrong else ("right", "")


def _relative_error(got: npt.NDArray[Any], expected: npt.NDArray[Any]) -> float:
    exact = expected.astype(np.float64)
    return float(np.linalg.norm(got.astype(np.float64) - exact) / max(float(np.linalg.norm(exact)), 1e-30))
