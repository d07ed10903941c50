"""Blocks of a family: their problems, and which of them cover the outputs of its sizes best."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...algorithms.algorithm import Algorithm
from ...algorithms.cpu.model.cold import cold_lines
from ...algorithms.cpu.model.cost import cycles, lines
from ...checks import LARGEST
from ...dtypes import DTYPE_BYTES
from ...errors import InvalidProblemError
from ...family import ProblemFamily
from ...problem import Problem
from ...targets.target import CpuTarget
from .cover import Cost, Covers, Reach, Shape, choose
from .images import DATA, OUTPUT

# Outputs along each axis of blocks to choose from: rows, columns and squares of a few pixels, which read a filter once, to blocks that
# read it seldom.
_SHAPES: dict[int, tuple[Shape, ...]] = {
    1: tuple((x,) for x in (1, 2, 3, 5, 6, 8, 14, 24, 48, 96, 192, 384, 1536)),
    2: (
        *((1, x) for x in (1, 2, 3, 5, 7, 14, 24)), *((y, 1) for y in (3, 7, 14)), (2, 2), (2, 3), (2, 7), (2, 14), (7, 3), (4, 4), (5, 5),
        (4, 14), (4, 24), (7, 7), (14, 14), (20, 20), (28, 28), (28, 56), (56, 56),
    ),
    3: (
        *((1, 1, x) for x in (1, 3, 7, 14)), (1, 3, 1), (4, 1, 1), (1, 2, 2), (2, 2, 2), (2, 1, 7), (1, 4, 4), (2, 4, 4), (1, 4, 24),
        (2, 7, 7), (2, 14, 14), (4, 14, 14), (4, 14, 28), (4, 28, 28),
    ),
}  # fmt: skip
# Whole tiles, of algorithms that compute tiles of 4 or 2 outputs along an axis.
_WHOLE_TILES: dict[int, tuple[Shape, ...]] = {
    1: tuple((x,) for x in (4, 8, 12, 16, 24, 48, 96, 192, 384, 1536)),
    2: (
        *((4, x) for x in (4, 8, 12, 20, 28)), (8, 4), (16, 4), (8, 8), (8, 12), (12, 12), (16, 16), (20, 20), (28, 28), (28, 56), (56, 56),
    ),
    3: ((1, 4, 4), (1, 4, 8), (1, 8, 4), (1, 4, 24), (1, 8, 8), (2, 8, 8), (4, 4, 4), (2, 8, 16), (2, 16, 16), (4, 16, 16), (4, 16, 28)),
}  # fmt: skip
# The first of these whose arrays leave half of L2 to the filter, or else the last, is the largest block that a family may have.
_LARGEST: dict[int, tuple[Shape, ...]] = {
    1: ((1536,), (384,), (192,)),
    2: ((56, 56), (28, 56), (28, 28)),
    3: ((4, 28, 28), (4, 14, 28), (4, 14, 14), (2, 14, 14)),
}
# The number of blocks that a family has at most, and the part of the mean time that each brings: files and compiling take as many times
# as long.
_MOST, _GAIN = 8, 0.01
# Extents for which blocks are chosen where nobody says any, the least and the greatest, by number of free axes.
_EXTENTS = {1: (1, 2500), 2: (1, 160), 3: (1, 21)}
# Sizes along each axis for which blocks are chosen, each in proportion to the one before; by number of axes that vary.
_SIZES = {0: 1, 1: 27, 2: 12, 3: 6}
# Cycles of a block beside its kernel's.
_BLOCK_CYCLES = 800.0


class BlockCost(NamedTuple):
    """A candidate block of a family: its algorithm's name, and its cost."""

    algorithm: str
    cost: Cost

    @property
    def outputs(self) -> Shape:
        """Outputs along each axis."""
        return self.cost.outputs


def is_flat(family: ProblemFamily) -> bool:
    """Return whether pixels are only carried along."""
    ones = (1,) * family.rank
    zeros = ((0,) * family.rank,) * 2
    return (
        family.op == "convolution"
        and family.kernel == ones == family.strides
        and family.pads in (zeros, "same_upper", "same_lower")
    )


def images_of(family: ProblemFamily, problem: Problem) -> tuple[Shape, int]:
    """Return the outputs along each axis that blocks cover in a problem, and how many such images it has.

    Pixels that are only carried along are one row, and images that lie together are one.
    """
    outputs, count = problem.out_spatial, problem.batch
    if is_flat(family):
        outputs = (*(1,) * (family.rank - 1), prod(outputs))
        if family.data_format == "NXC":
            outputs, count = (*outputs[:-1], outputs[-1] * count), 1
    return outputs, count


def choose_blocks(blocks: Sequence[BlockCost], outputs: Sequence[Shape], reach: Reach | None) -> list[BlockCost]:
    """Return the blocks that a family has, of some that it may have, for outputs along each axis; the largest first."""
    if not blocks:
        return []
    chosen = choose([each.cost for each in blocks], list(dict.fromkeys(outputs)), _MOST, _GAIN, reach)
    return sorted((blocks[number] for number in chosen), key=lambda each: -prod(each.outputs))


def cover_by(blocks: Sequence[BlockCost], outputs: Sequence[Shape], reach: Reach | None) -> npt.NDArray[np.float64]:
    """Return the cycles of outputs along each axis by some blocks."""
    return Covers([each.cost for each in blocks], outputs, reach).cycles(range(len(blocks)))


def reach_of(family: ProblemFamily) -> Reach | None:
    """Return the extents of data that a family's outputs read; None if it is transposed: its phases differ."""
    f, spans = family, [d * (k - 1) + 1 for k, d in zip(family.kernel, family.dilations, strict=True)]
    if f.op != "convolution":
        return None
    before, behind = ((tuple((span - 1) // 2 for span in spans),) * 2) if isinstance(f.pads, str) else f.pads
    if is_flat(f):
        before = behind = (0,) * f.rank
    return Reach(f.strides, f.kernel, f.dilations, before, behind)


def block_problem(family: ProblemFamily, outputs: Shape) -> Problem:
    """Return the problem of a block of so many outputs, which reads no padding of its own.

    Of a transposed convolution, outputs are a multiple of the stride. Its pads are the most by which all inputs before data would be a
    stride apart from what is read, and of the phase of the family's, so that blocks begin at its first output.
    """
    f = family
    spans = [d * (k - 1) + 1 for k, d in zip(f.kernel, f.dilations, strict=True)]
    axes = list(zip(outputs, f.strides, spans, strict=True))
    if f.op == "convolution":
        begin, inputs = [0] * f.rank, [(y - 1) * s + span for y, s, span in axes]
        end = begin
    else:
        pads = [0] * f.rank if isinstance(f.pads, str) else f.pads[0]
        phases = [(span - 1 - pad) % s for pad, s, span in zip(pads, f.strides, spans, strict=True)]
        begin = [span - 1 - (phase if phase < span else 0) for phase, span in zip(phases, spans, strict=True)]
        inputs = [(y + b - 1) // s + 1 for (y, s, _), b in zip(axes, begin, strict=True)]
        end = [max(s * (x - 1) + span - b - y, 0) for (y, s, span), x, b in zip(axes, inputs, begin, strict=True)]
    return Problem(
        f.op, 1, f.in_channels, tuple(inputs), f.out_channels, outputs, f.kernel, f.strides, f.dilations, tuple(begin), tuple(end),
        f.groups, f.data_format, f.filter_format, f.dtype, f.bias, f.epilogue, f.zero_point,
        f.filter_zero_point, f.bias_dtype,
    )  # fmt: skip


def largest_block(family: ProblemFamily, target: CpuTarget) -> Problem:
    """Return the problem of the largest block that a family may have."""
    problems = [block_problem(family, _whole(family, each)) for each in _LARGEST[_rank(family)]]
    fitting = (each for each in problems if sum(bytes_by_name(each).values()) <= target.l2 // 2)
    return next(fitting, problems[-1])


def bytes_by_name(problem: Problem) -> dict[str, int]:
    """Return the bytes of a block's data and output."""
    types = problem.types
    return {
        DATA: DTYPE_BYTES[types.data] * prod(problem.data_shape),
        OUTPUT: DTYPE_BYTES[types.output] * prod(problem.output_shape),
    }


def copy_cycles(size: int, target: CpuTarget) -> float:
    """Return the cycles of so many bytes that are copied."""
    return cycles({"lines.copy": lines(size)}, target)


def from_memory(problem: Problem, size: int, target: CpuTarget) -> float:
    """Return the cycles of a filter of so many bytes that comes from memory."""
    return cycles(cold_lines(problem, size), target)


def cost_of(family: ProblemFamily, outputs: Shape, target: CpuTarget, algorithm: Algorithm, by_taps: bool) -> Cost:
    """Return a block's cost; it reads its filter from memory in each call if no cache keeps it.

    Of one that sums ranges of taps (`tap_ranges.py`), the sums are what a tap less saves, for all taps along that axis.
    """
    problem = block_problem(family, outputs)
    size = algorithm.filter_bytes(problem, target)
    again = 0.0 if target.keeps(size) else from_memory(problem, size, target)
    own, sums = algorithm.cycles(problem, target), 0.0
    if by_taps:
        most = max(range(family.rank), key=family.kernel.__getitem__)
        kernel = tuple(k - (axis == most) for axis, k in enumerate(family.kernel))
        fewer = algorithm.cycles(block_problem(replace(family, kernel=kernel), outputs), target)
        sums = min(max((own - fewer) * family.kernel[most], own / 2), own)
    copy = copy_cycles(bytes_by_name(problem)[DATA], target)
    return Cost(outputs, own - sums + _BLOCK_CYCLES + (0 if by_taps else again), sums + (again if by_taps else 0), copy)


def may_range(family: ProblemFamily, algorithm: Algorithm) -> bool:
    """Return whether an algorithm's blocks are likely to sum ranges of taps: it reads data in place, and has loops over taps."""
    depthwise = family.in_channels == family.out_channels == family.groups
    return (
        algorithm.name.removesuffix("_ordered") == ("grouped" if depthwise else "direct")
        and (family.op, family.data_format, family.dtype) == ("convolution", "NXC", "f32")
        and max(family.kernel) > 1
    )


def _rank(family: ProblemFamily) -> int:
    return 1 if is_flat(family) else family.rank


def candidates(family: ProblemFamily, target: CpuTarget, algorithm: Algorithm) -> list[BlockCost]:
    """Return blocks that an algorithm computes, none larger than the largest that there may be."""
    shapes = (_WHOLE_TILES if "points" in algorithm.options else _SHAPES)[_rank(family)]
    most = prod(largest_block(family, target).out_spatial)
    found = dict.fromkeys(_whole(family, each) for each in shapes)
    fitting = [each for each in found if prod(each) <= most]
    by_taps = may_range(family, algorithm)
    return [
        BlockCost(algorithm.name, cost_of(family, each, target, algorithm, by_taps))
        for each in fitting
        if algorithm.covers(block_problem(family, each), target) is None
    ]


def _whole(family: ProblemFamily, outputs: Shape) -> Shape:
    """Return outputs of a block: along an axis that is not free no more than it has, but for pads, and of whole strides."""
    transposed = family.op != "convolution"
    axes = list(zip(family.in_spatial, family.strides, strict=True))
    outputs = (1,) * (family.rank - len(outputs)) + outputs
    limits = [LARGEST if x.is_free or is_flat(family) else x.low * s if transposed else -(-x.low // s) for x, s in axes]
    outputs = tuple(max(min(y, limit), 1) for y, limit in zip(outputs, limits, strict=True))
    return tuple(-(-y // s) * s for y, (_, s) in zip(outputs, axes, strict=True)) if transposed else outputs


def typical_outputs(family: ProblemFamily) -> list[Shape]:
    """Return the outputs along each axis of small and large problems of a family's ranges."""
    free = sum(each.is_free for each in family.in_spatial)
    found = []
    for pixels in _EXTENTS[1 if is_flat(family) else max(free, 1)]:
        extent = round(pixels ** (1 / max(free, 1))) if is_flat(family) else pixels
        spans = [d * (k - 1) + 1 for k, d in zip(family.kernel, family.dilations, strict=True)]
        axes = zip(family.in_spatial, spans, strict=True)
        for spatial in ([each.near(extent) for each in family.in_spatial], [x.near(max(extent, k)) for x, k in axes]):
            with suppress(InvalidProblemError):  # no output
                found.append(images_of(family, family.problem(family.batch.near(1), spatial))[0])
                break
    return outputs_between(found or [images_of(family, family.typical)[0]])


def outputs_between(given: Sequence[Shape]) -> list[Shape]:
    """Return outputs along each axis between the least and the greatest of those that are given, of all axes by themselves."""
    limits = [(max(min(each), 1), max(*each, 1)) for each in zip(*given, strict=True)]
    count = _SIZES[sum(least < most for least, most in limits)]
    values = [
        dict.fromkeys(round(least * (most / least) ** (at / max(count - 1, 1))) for at in range(count))
        for least, most in limits
    ]
    return list(product(*values))
