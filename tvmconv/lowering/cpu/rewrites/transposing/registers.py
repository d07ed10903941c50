"""Transpose vectors in registers by shuffles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx

from .....algorithms.annotations import PART


def transposed_vectors(vectors: list[Any], lanes: int) -> list[Any]:
    """Return 4 or `lanes` vectors transposed: 4 vectors within each 128-bit part, `lanes` vectors as a whole."""
    if len(vectors) > PART:
        # Whole parts first: otherwise LLVM would repeat the first stage for each part, to avoid unused lanes.
        by_part = list(zip(*(_transposed_parts(vectors[i::PART]) for i in range(PART)), strict=True))
    else:
        by_part = [tuple(vectors)]
    return [each for quad in by_part for each in _transposed_within_parts(quad, lanes)]


def _transposed_within_parts(vectors: Sequence[Any], lanes: int) -> list[Any]:
    """Return four vectors transposed within each 128-bit part (unpcklps and the like)."""
    a, b, c, d = vectors
    low, high = (0, lanes, 1, lanes + 1), (2, lanes + 2, 3, lanes + 3)
    firsts, seconds = (0, 1, lanes, lanes + 1), (2, 3, lanes + 2, lanes + 3)

    def each_part(one: Any, other: Any, order: tuple[int, ...]) -> Any:
        return shuffle([one, other], [part + lane for part in range(0, lanes, PART) for lane in order])

    return [
        each_part(each_part(a, b, ends), each_part(c, d, ends), halves)
        for ends in (low, high)
        for halves in (firsts, seconds)
    ]


def _transposed_parts(vectors: list[Any]) -> list[Any]:
    """Return the vectors of all first parts, all second parts, and so on (vshuff32x4, which takes two parts of each of two vectors)."""

    def parts(one: Any, other: Any, *order: int) -> Any:
        return shuffle([one, other], [part * PART + lane for part in order for lane in range(PART)])

    if len(vectors) == 2:
        return [parts(*vectors, 0, 2), parts(*vectors, 1, 3)]
    a, b, c, d = vectors
    halves = [(parts(a, b, *order), parts(c, d, *order)) for order in ((0, 1, 4, 5), (2, 3, 6, 7))]
    return [parts(*half, *order) for half in halves for order in ((0, 2, 4, 6), (1, 3, 5, 7))]


def join_quarters(vectors: list[Any]) -> Any:
    """Return 128-bit vectors concatenated."""
    if len(vectors) == 1:
        return vectors[0]
    return shuffle(vectors, list(range(len(vectors) * PART)))


def part_of(vector: Any, part: int, lanes: int) -> Any:
    """Return `lanes` lanes of a vector, from lane `part` on."""
    return shuffle([vector], list(range(part, part + lanes)))


def shuffle(vectors: list[Any], lanes: list[int]) -> Any:
    """Return a vector of some lanes of vectors, numbered consecutively."""
    return tirx.Shuffle(vectors, [tirx.const(lane, "int32") for lane in lanes])


def vector_at(buffer: Any, start: int, lanes: int) -> Any:
    """Return a vector from a flat buffer."""
    return tirx.BufferLoad(buffer, [tirx.Ramp(start, 1, lanes)])
