"""What one library's process does: make a problem ready, check the answer, time the call."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from tvmconv import load
from tvmconv.accuracy import relative_error
from tvmconv.errors import VerificationError, missing_extra
from tvmconv.fills import Arrays, numpy_dtype, random_fill
from tvmconv.problem import Problem
from tvmconv.runtime.arrays import aligned_empty
from tvmconv.signature import parse_signature

from .peers import INTEGERS, PEERS, Prepared, UnsupportedError, check_supported
from .rest import take_turn

OURS, OURS_PACKED = "tvmconv", "tvmconv_packed"
# Relative L2 errors on normal data that the type and f32 sums, or Winograd in f32, give; computing in a lesser type
# gives more: bf16 for f32 or f16 about 2e-3.
ALLOWED_ERROR = {"f32": 2e-5, "f16": 1e-3, "bf16": 1e-2, INTEGERS: 1e-2}  # of integers some are the next one
# A call that takes longer is timed once: it is no rival.
PATIENCE = 1.0
# The most ways in which one process calls its library for one problem.
_WAYS = 4


@dataclass(frozen=True)
class Task:
    """Time `contender` on the problem `signature`.

    Attributes
    ----------
    contender
        `OURS`, `OURS_PACKED`, or one of `PEERS`.
    signature
        The problem.
    bundle
        Folder with our kernel for it.
    expected
        File with the reference's output for `random_fill`.
    threads, seconds
        How many threads, and for how long.
    """

    contender: str
    signature: str
    bundle: str
    expected: str
    threads: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.contender} on {self.signature}"


@dataclass(frozen=True)
class Answer:
    """Seconds a call took, sample by sample; or why there are none."""

    samples: list[float]
    unsupported: str = ""


def measure(task: Task) -> Answer:
    """Time what `task` says.

    Raises
    ------
    VerificationError
        If our kernel's answer is wrong. A peer's wrong answer only rules it out.
    MissingExtraError
        If the peer is not installed.
    """
    try:
        call, once = _ready(task.contender, task.signature, task.bundle, task.expected, task.threads)
    except UnsupportedError as error:
        return Answer([], str(error))
    return Answer([once]) if once > PATIENCE else Answer(take_turn(call, task.seconds))


# Every round of a problem comes before the next problem.
@lru_cache(maxsize=_WAYS)
def _ready(contender: str, signature: str, bundle: str, expected: str, threads: int) -> tuple[Callable[[], Any], float]:
    """Return the call, whose answer is right, and the seconds it took once warm."""
    problem = parse_signature(signature)
    arrays = random_fill(problem)
    ours = contender in (OURS, OURS_PACKED)
    prepared = _our_kernel(contender, problem, arrays, bundle) if ours else _peer(contender, problem, arrays, threads)
    error = relative_error(prepared.answer(), np.load(expected))
    if not error <= ALLOWED_ERROR[problem.dtype]:
        wrong = f"the relative L2 error is {error:.2g}, allowed is {ALLOWED_ERROR[problem.dtype]:.2g}"
        if ours:
            raise VerificationError(f"{contender} computes something else for {signature}: {wrong}")
        raise UnsupportedError(f"wrong answer: {wrong}")
    start = time.perf_counter()
    prepared.call()
    return prepared.call, time.perf_counter() - start


def _peer(name: str, problem: Problem, arrays: Arrays, threads: int) -> Prepared:
    check_supported(problem)
    peer = PEERS[name]
    try:
        module = import_module(f"{__package__}.peers.{peer.module}")
    except ModuleNotFoundError as error:
        raise missing_extra("bench", error.name or peer.package) from error
    prepared: Prepared = module.prepare(problem, arrays, peer.option, threads)
    return prepared


def _our_kernel(name: str, problem: Problem, arrays: Arrays, bundle: str) -> Prepared:
    kernel: Any = load(bundle).lookup(problem)  # a CPU's, which packs filters: the bundle is built for this machine
    given = arrays.given()
    if name == OURS_PACKED:
        given["filter"] = kernel.pack(arrays.filter)
    output = aligned_empty(problem.output_shape, numpy_dtype(problem.types.output))  # as calls without `out` make it
    call = partial(kernel, **given, out=output)

    def answer() -> npt.NDArray[Any]:
        call()
        return output

    return Prepared(call, answer)
