"""The final race: several right kernels of one problem, timed in turns in every placement of the arrays.

Runs where `tvmconv.measuring.measure` does, in a process of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import cycle
from typing import Any

import numpy.typing as npt
import tvm_ffi

from ..problem import Problem
from ..runtime.arrays import aligned_empty
from ..runtime.packed import PACK_SYMBOL, PACKED_SYMBOL
from ..signature import format_signature
from .cases import case_of
from .cores import Cores
from .placements import PLACEMENTS
from .quiet import Least, least

# Length of a kernel's turn, and of its wait for a busy neighbour.
TURN_SECONDS, TURN_PATIENCE = 0.005, 0.1
# Undisturbed turns that each kernel takes in each placement, and when to go on without them: long kernels take one.
TURNS = 3
PLACEMENT_SECONDS = 0.75
# Placements of 8, in which nobody disturbed the race, for it to count.
LEAST_QUIET = 4


@dataclass(frozen=True)
class Built:
    """A candidate's library.

    Attributes
    ----------
    path
        The library.
    packed
        Elements and type of the prepacked filter that it is called with; None: it takes the plain one.
    ending
        End of its kernel's name, where the library has several candidates' kernels.
    pack
        Function that packs its filter, which several candidates may share.
    """

    path: str
    packed: tuple[int, str] | None = None
    ending: str = ""
    pack: str = PACK_SYMBOL

    def call(self, arrays: Sequence[npt.NDArray[Any]], cold_bytes: int = 0) -> Callable[[], object]:
        """Return a call with these arrays (data, filter, bias if there is one, output), the filter packed before.

        With `cold_bytes`, calls take copies of the filter in turn, which together have at least so many bytes, more than caches keep.
        """
        arguments = [tvm_ffi.from_dlpack(array) for array in arrays]
        library = tvm_ffi.load_module(self.path)
        if self.packed is None:
            kernel, filter_ = library["tvmconv_kernel" + self.ending], arrays[1]
        else:
            elements, dtype = self.packed
            kernel, filter_ = library[PACKED_SYMBOL + self.ending], aligned_empty((elements,), dtype)
            library[self.pack](arguments[1], tvm_ffi.from_dlpack(filter_))
        filters = [filter_]
        while len(filters) * filter_.nbytes < cold_bytes:
            filters.append(aligned_empty(filter_.shape, filter_.dtype))
            filters[-1][...] = filter_
        calls = [partial(kernel, arguments[0], tvm_ffi.from_dlpack(each), *arguments[2:]) for each in filters]
        return calls[0] if len(calls) == 1 else _in_turn(calls)


@dataclass(frozen=True)
class Race:
    """Time several checked libraries of one problem in turns.

    Attributes
    ----------
    problem, libraries
        The problem and the libraries. The first is timed twice: how far the two differ is the noise.
    cold_bytes
        As for `Built.call`; 0: filters are hot, all calls read the same.
    """

    problem: Problem
    libraries: tuple[Built, ...]
    cold_bytes: int = 0

    def __str__(self) -> str:
        return f"comparing the fastest kernels of {format_signature(self.problem)}"


@dataclass(frozen=True)
class Times:
    """The answer to a Race.

    Attributes
    ----------
    seconds
        For each library, the least that a call took in each placement.
    again
        Times of the first library, timed once more in turn with all.
    quiet
        For each placement, whether all libraries had an undisturbed turn. Where not, kernels that wait for no other
        thread seem hundreds of times faster.
    """

    seconds: tuple[tuple[float, ...], ...]
    again: tuple[float, ...]
    quiet: tuple[bool, ...]

    def undisturbed(self) -> Times:
        """Return the times in quiet placements alone, of which a race that counts has `LEAST_QUIET`."""

        def kept(times: tuple[float, ...]) -> tuple[float, ...]:
            return tuple(seconds for seconds, quiet in zip(times, self.quiet, strict=True) if quiet)

        return Times(tuple(map(kept, self.seconds)), kept(self.again), (True,) * sum(self.quiet))


def race(task: Race, cores: Cores) -> Times:
    """Time the libraries while threads are placed as `cores` demands."""
    inputs, output, _ = arrays_of(task.problem)
    given = [*inputs, output]
    libraries = (*task.libraries, task.libraries[0])
    by_placement = [_turns(task, libraries, placement.copy(given), cores) for placement in PLACEMENTS]
    *seconds, again = zip(*(seconds for seconds, _ in by_placement), strict=True)
    return Times(tuple(seconds), again, tuple(quiet for _, quiet in by_placement))


@lru_cache(maxsize=1)
def arrays_of(problem: Problem) -> tuple[list[npt.NDArray[Any]], npt.NDArray[Any], npt.NDArray[Any]]:
    """Return inputs and output for the kernel, the same memory for every candidate, and the expected output."""
    arrays, expected = case_of(problem)
    *inputs, output = PLACEMENTS[0].copy([*(array for array in arrays if array is not None), expected])
    return inputs, output, expected


def _in_turn(calls: Sequence[Callable[[], object]]) -> Callable[[], object]:
    following = cycle(calls)
    return lambda: next(following)()


def _turns(
    task: Race, libraries: Sequence[Built], arrays: list[npt.NDArray[Any]], cores: Cores
) -> tuple[list[float], bool]:
    """Return the least seconds of each library on these arrays, undisturbed if it ever was, and whether all were."""
    calls = [library.call(arrays, task.cold_bytes) for library in libraries]
    turns: list[list[Least]] = [[] for _ in calls]
    spent = 0.0
    while not turns[0] or (min(map(_quiet, turns)) < TURNS and spent < PLACEMENT_SECONDS):
        cores.settle()
        start = time.perf_counter()
        order = list(zip(calls, turns, strict=True))
        # There and back, so that neither the order nor a drift of the clock favours one.
        for call, of_call in order if len(turns[0]) % 2 == 0 else reversed(order):
            of_call.append(least(call, TURN_SECONDS, TURN_PATIENCE))
        if not cores.settled():
            for of_call in turns:
                of_call[-1] = replace(of_call[-1], quiet=False)
        spent += time.perf_counter() - start
    least_seconds = [
        min([turn.seconds for turn in of_call if turn.quiet] or [turn.seconds for turn in of_call]) for of_call in turns
    ]
    return least_seconds, min(map(_quiet, turns)) > 0


def _quiet(turns: list[Least]) -> int:
    return sum(turn.quiet for turn in turns)
