"""Check the kernels of a bundle against the reference."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy.typing as npt

from .. import reference
from ..accuracy import difference, inaccuracy, relative_error
from ..errors import TvmconvError, TvmconvWarning
from ..family_text import is_family, parse_family
from ..fills import Arrays, blank_output, exact_case, fixed_fill, random_fill
from ..problem import Problem
from ..signature import format_signature, parse_signature
from ..support.folders import lock
from ..support.progress import Progress
from ..support.sandbox import Sandbox
from .bundle import EMULATED, ORDERED, Bundle, Entry, read_bundle, record_answers
from .cuda.kernel import CudaKernel
from .cuda.memory import DeviceArray
from .emulation import find_emulator, kernel_here
from .family_kernel import FamilyKernel
from .kernel import Kernel
from .processors import allowed_processors
from .selection import BACKENDS, first_gpu, obstacle, runnable

# Time limit of a check, plus time for the reference, which computes at least so many operations a second in f64 by NumPy.
CHECK_SECONDS, REFERENCE_FLOPS = 120.0, 1e7


@dataclass(frozen=True)
class Answer:
    """Comparison of a kernel's answer with the reference.

    Attributes
    ----------
    measure, value
        ``"exact"`` and 0, or ``"relative_l2"`` and that error, for transforms and TF32.
    wrong
        Description of the error; empty if there is none.
    emulator
        The emulator; None: it ran natively.
    digest
        Digest of a reproducible kernel's answer to `fixed_fill`; None: the kernel is not reproducible.
    """

    measure: str
    value: float
    wrong: str
    emulator: str | None = None
    digest: str | None = None

    def recorded(self, entry: Entry) -> Entry:
        """Return a right kernel's entry with this result; emulation does not replace a native verification."""
        verified = True if self.emulator is None or entry.verified is True else EMULATED
        error = {"measure": self.measure, "value": self.value}
        emulator = self.emulator if verified == EMULATED else None
        return replace(entry, verified=verified, error=error, emulator=emulator, digest=self.digest)


@dataclass(frozen=True)
class KernelCheck:
    """Kernel to check, that of `entry` in `bundle`; a family's at the extents of the problems `sizes`."""

    bundle: Bundle
    entry: Entry
    sizes: tuple[Problem, ...] = ()

    def __str__(self) -> str:
        return f"checking {self.entry.signature} for {self.entry.target}"


@dataclass(frozen=True)
class Verdict:
    """Result of checking one entry of a bundle.

    Attributes
    ----------
    signature, target, algorithm
        Those of the entry.
    status
        ``"right"``, ``"wrong"``, or ``"skipped"`` when this machine cannot run it.
    detail
        Description of the error, or the reason for skipping.
    """

    signature: str
    target: str
    algorithm: str
    status: str
    detail: str = ""


def verify(path: str | os.PathLike[str], progress: Progress | None = None) -> list[Verdict]:
    """Check every entry of the bundle at `path` with inputs that have one right answer.

    The kernels run in a process of their own: one that crashes or hangs is wrong, and the others are still checked.
    Each entry's `verified` and `error` are written into the bundle; if that fails, a warning is issued.

    Parameters
    ----------
    path
        The bundle's folder.
    progress
        Called as ``progress(done, total, what)``.

    Returns
    -------
    list of Verdict
        A verdict for each entry, in the bundle's order.

    Raises
    ------
    BundleError
        If there is no bundle, or its manifest is damaged.
    UnsupportedMachineError
        If this machine can run none of its kernels.
    """
    bundle = read_bundle(path)
    if not any(find_emulator(bundle.targets[entry.target]) for entry in bundle.all_entries):
        runnable(bundle)  # raise if nothing can be checked
    verdicts: list[Verdict] = []
    answers: dict[tuple[str, str], Entry] = {}
    sandbox = Sandbox(check_kernel, threads=len(allowed_processors()))
    try:
        for entry in bundle.all_entries:
            if progress is not None:
                progress(len(verdicts), len(bundle.all_entries), entry.signature)
            verdict, answered = _verdict(bundle, entry, sandbox)
            verdicts.append(verdict)
            if answered.verified != entry.verified:
                answers[entry.signature, entry.target] = answered
    finally:
        sandbox.close()
    if answers:
        _record(bundle.path, answers)
    return verdicts


def _record(path: Path, answers: dict[tuple[str, str], Entry]) -> None:
    place = path.resolve()
    try:
        with lock(place.parent):
            record_answers(place, answers)
    except OSError as error:
        warnings.warn(f"the results cannot be written to {path}: {error.strerror}", TvmconvWarning, stacklevel=3)


def check_kernel(check: KernelCheck) -> Answer:
    """Run a kernel on an exact fill, with its filter plain and prepacked, and a transform or TF32 kernel on normal data, too.

    The outputs are compared with the reference.
    """
    target = check.bundle.targets[check.entry.target]
    emulator = find_emulator(target)
    packs = BACKENDS[target.kind].packs
    if check.sizes:
        return _compare_sizes(check)
    problem = parse_signature(check.entry.signature)
    answer = _compare(problem, check.entry, packs, _on_cpu(check) if packs else _on_gpu(check))
    return replace(answer, emulator=emulator.name if emulator else None)


def _compare_sizes(check: KernelCheck) -> Answer:
    """Return the first wrong answer, else the one with the greatest error."""
    kernel = FamilyKernel(check.bundle, check.entry, check.sizes[0])
    worst = Answer("exact", 0.0, "")
    for problem in check.sizes:
        answer = _compare(problem, check.entry, True, _computer(kernel.at(problem)))
        if answer.wrong:
            return replace(answer, wrong=f"{format_signature(problem)}: {answer.wrong}")
        worst = max(worst, answer, key=lambda each: each.value)
    return worst


def _compare(problem: Problem, entry: Entry, packs: bool, computed: Callable[..., npt.NDArray[Any]]) -> Answer:
    numerical_class = entry.numerical_class
    arrays, expected = exact_case(problem)
    wrong = difference(computed(arrays), expected, numerical_class, problem)
    if not wrong and packs:
        wrong = difference(computed(arrays, packed=True), expected, numerical_class, problem)
        wrong = wrong and f"with the filter prepacked, {wrong}"
    if not wrong and entry.algorithm.endswith(ORDERED) and not is_family(entry.signature):
        return _same_bits(entry, computed(fixed_fill(problem)))
    if wrong or numerical_class == "exact":
        return Answer("exact", 0.0, wrong)
    arrays = random_fill(problem)
    output, expected = computed(arrays), reference.compute(problem, **arrays.given())
    wrong = inaccuracy(output, expected, numerical_class, problem.dtype)
    return Answer("relative_l2", relative_error(output, expected), wrong)


def _same_bits(entry: Entry, output: npt.NDArray[Any]) -> Answer:
    """Compare the digest of a reproducible kernel's answer with the recorded one, if there is one."""
    digest = hashlib.sha256(output.tobytes()).hexdigest()[:16]
    differs = f"its answer has the digest {digest}, and had {entry.digest} on another machine"
    return Answer("exact", 0.0, differs if entry.digest not in (None, digest) else "", digest=digest)


def _on_cpu(check: KernelCheck) -> Callable[..., npt.NDArray[Any]]:
    """Return a function that computes a kernel's output from arrays, with its filter plain or prepacked."""
    kernel = kernel_here(check.bundle, check.entry)
    assert kernel is not None, f"nothing runs {check.entry.signature} for {check.entry.target}"
    return _computer(kernel)


def _computer(kernel: Kernel) -> Callable[..., npt.NDArray[Any]]:
    def computed(arrays: Arrays, *, packed: bool = False) -> npt.NDArray[Any]:
        output = blank_output(kernel.problem)
        given: dict[str, Any] = arrays.given()
        if packed:
            given["filter"] = kernel.pack(arrays.filter)
        kernel(**given, out=output)
        return output

    return computed


def _on_gpu(check: KernelCheck) -> Callable[..., npt.NDArray[Any]]:
    """Return a function that computes a kernel's output from arrays, on the first GPU that runs its code."""
    kernel, index = CudaKernel(check.bundle, check.entry), first_gpu(check.bundle.targets[check.entry.target])

    def computed(arrays: Arrays) -> npt.NDArray[Any]:
        output = DeviceArray.of(blank_output(kernel.problem), index)
        kernel(**{name: DeviceArray.of(array, index) for name, array in arrays.given().items()}, out=output)
        return output.numpy()

    return computed


def _verdict(bundle: Bundle, entry: Entry, sandbox: Sandbox[KernelCheck, Answer]) -> tuple[Verdict, Entry]:
    """Return the verdict on an entry, and the entry with the recorded result."""

    def verdict(status: str, detail: str = "") -> Verdict:
        return Verdict(entry.signature, entry.target, entry.algorithm, status, detail)

    hindrance = obstacle(bundle.targets[entry.target])
    is_of_family = is_family(entry.signature)
    if hindrance is not None and (is_of_family or find_emulator(bundle.targets[entry.target]) is None):
        return verdict("skipped", hindrance), entry
    # The other entries are not sent to the process.
    sizes = parse_family(entry.signature).examples() if is_of_family else ()
    check = KernelCheck(replace(bundle, entries=(), families=()), entry, sizes)
    try:
        flops = sum(each.flops for each in sizes) if sizes else parse_signature(entry.signature).flops
        answer = sandbox.call(check, CHECK_SECONDS + flops / REFERENCE_FLOPS)
    except TvmconvError as error:
        return verdict("wrong", str(error)), replace(entry, verified=False, error=None)
    if answer.wrong:
        return verdict("wrong", answer.wrong), replace(entry, verified=False, error=None)
    return verdict("right", f"under {answer.emulator}" if answer.emulator else ""), answer.recorded(entry)
