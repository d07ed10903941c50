"""Split a batch that has no kernel of its own into calls for other batch sizes."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from math import inf, prod

from ..dtypes import DTYPE_BYTES
from ..problem import Problem
from ..signature import format_signature
from .backend import Device
from .dltensor import ALIGNMENT

# A batch that occurs more often in a split is written with its number of calls.
_WRITTEN_OUT = 3


@dataclass(frozen=True, slots=True)
class BatchPart:
    """A number of calls of one kernel, with its batch."""

    batch: int
    calls: int
    signature: str

    def __str__(self) -> str:
        return (
            " + ".join([str(self.batch)] * self.calls) if self.calls <= _WRITTEN_OUT else f"{self.calls} x {self.batch}"
        )


@dataclass(frozen=True, slots=True)
class Split:
    """Calls for other batch sizes by which a device serves a batch.

    Attributes
    ----------
    device
        ``"this machine's CPU"``, or a GPU.
    batches
        The batch sizes of its kernels, the largest first.
    parts
        The calls in order. Empty: there is nothing to compute, or an obstacle.
    obstacle
        Why there are none; None if there are.
    """

    device: str
    batches: tuple[int, ...]
    parts: tuple[BatchPart, ...] = ()
    obstacle: str | None = None

    def __str__(self) -> str:
        return " + ".join(map(str, self.parts)) or "no call"


def find_split(
    problem: Problem, signatures: Iterable[str], device: Device = None, batches: Collection[int] | None = None
) -> Split | None:
    """Return the calls of kernels for other batch sizes that serve `problem` on a device.

    Parameters
    ----------
    signatures
        Signatures of the kernels that the device can run.
    batches
        Batches that may be called; None: all.

    Returns
    -------
    Split or None
        None if none of the kernels is for another batch of the same problem.
    """
    same = _without_batch(format_signature(problem))[1]
    found = sorted(((*_without_batch(text), text) for text in signatures), reverse=True)
    by_batch = {
        batch: text
        for batch, rest, text in found
        if rest == same and batch not in (0, problem.batch) and (batches is None or batch in batches)
    }
    if not by_batch:
        return None
    name, sizes = "this machine's CPU" if device is None else str(device), tuple(by_batch)
    calls = calls_for(problem.batch, sizes)
    if calls is None:
        there = ", ".join(map(str, sizes))
        reason = f"batch {problem.batch} is no sum of those that there are kernels for: {there}"
        return Split(name, sizes, obstacle=reason)
    if device is not None and (odd := _unaligned_bytes(problem, calls)):
        reason = (
            f"images of {odd} bytes would begin between multiples of {ALIGNMENT} bytes, where no kernel for GPUs reads"
        )
        return Split(name, sizes, obstacle=reason)
    return Split(name, sizes, tuple(BatchPart(batch, times, by_batch[batch]) for batch, times in calls.items()))


def calls_for(batch: int, sizes: Iterable[int]) -> dict[int, int] | None:
    """Return numbers of calls, by size, that add up to a batch, the largest size first; None if none do.

    Greedy: as many of the largest as fit, then of the next; if that leaves a rest, the smallest number of calls without one.

    Parameters
    ----------
    sizes
        At least one, each at least 1.
    """
    sizes = sorted(sizes, reverse=True)
    calls, rest = {}, batch
    for size in sizes:
        calls[size], rest = divmod(rest, size)
    found = _fewest(batch, sizes) if rest else calls
    return found and {size: times for size, times in found.items() if times}


def _fewest(batch: int, sizes: list[int]) -> dict[int, int] | None:
    """Return the fewest calls that add up to `batch`, of sizes in falling order; None if none do."""
    largest, *smaller = sizes
    # Of `largest` or more smaller calls, some add up to a multiple of `largest` (pigeonhole), which takes no more calls of the largest.
    # So an optimum has fewer smaller calls.
    limit = min(batch, (largest - 1) * max(smaller, default=0))
    count: list[float] = [0.0] + [inf] * limit
    last = [0] * (limit + 1)
    for images in range(1, limit + 1):
        for size in smaller:
            if size <= images and count[images - size] + 1 < count[images]:
                count[images], last[images] = count[images - size] + 1, size
    possible = [images for images in range(batch % largest, limit + 1, largest) if count[images] < inf]
    if not possible:
        return None
    rest = min(possible, key=lambda images: count[images] + (batch - images) // largest)
    calls = dict.fromkeys(sizes, 0) | {largest: (batch - rest) // largest}
    while rest:
        calls[last[rest]] += 1
        rest -= last[rest]
    return calls


def _without_batch(signature: str) -> tuple[int, tuple[str, str]]:
    """Return the batch of a signature, and all else that it says."""
    operation, batch, rest = signature.split("-", 2)
    return int(batch[1:]), (operation, rest)


def _unaligned_bytes(problem: Problem, calls: dict[int, int]) -> int | None:
    """Return an image's bytes if a part of a batch may begin at an address that no GPU kernel can read."""
    followed = [size for size, times in calls.items() for _ in range(min(times, 2))][:-1]
    for shape, dtype in ((problem.data_shape, problem.types.data), (problem.output_shape, problem.types.output)):
        image = DTYPE_BYTES[dtype] * prod(shape[1:])
        if any(size * image % ALIGNMENT for size in followed):
            return image
    return None
