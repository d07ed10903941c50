"""What one library's process does: compute a problem, check the answer, time the call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib import import_module
from typing import Any

from tvmconv import load
from tvmconv.errors import VerificationError
from tvmconv.fills import exact_case
from tvmconv.measure import difference
from tvmconv.signature import parse_signature
from tvmconv.timing import sample_call

from .peers import UnsupportedError

OURS = "tvmconv"


@dataclass(frozen=True)
class Task:
    """Time `library` on the problem `signature` for `seconds`; `bundle` holds tvmconv's kernels."""

    library: str
    signature: str
    bundle: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.library} on {self.signature}"


def measure(task: Task) -> list[float]:
    """Return samples of the seconds a call takes; none when the library has no call for the problem."""
    try:
        call = _prepared(task.library, task.signature, task.bundle)
    except UnsupportedError:
        return []
    return sample_call(call, task.seconds)


# One: every round of a problem comes before the next problem.
@lru_cache(maxsize=1)
def _prepared(library: str, signature: str, bundle: str) -> Callable[[], Any]:
    problem = parse_signature(signature)
    arrays, expected = exact_case(problem)
    if library == OURS:
        kernel = load(bundle).lookup(problem)
        call, answer, numerical_class = partial(kernel, *arrays), kernel(*arrays), kernel.info.numerical_class
    else:
        peer = import_module(f"{__package__}.peers.{library}")
        call = peer.prepare(problem, arrays)
        # What it does inside is its own affair: it may transform.
        answer, numerical_class = peer.to_numpy(call(), problem), "transform"
    wrong = difference(answer, expected, numerical_class, problem.dtype)
    if wrong:
        raise VerificationError(f"{library} computes something else for {signature}: {wrong}")
    return call
