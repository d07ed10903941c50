"""Blocks of a family: their problems, costs, and the choice of those that cover the outputs of its sizes best."""

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

# Outputs along each axis of candidate blocks: from rows, columns and squares of a few pixels to blocks so large that the filter is read
# seldom.
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
# The same in whole tiles, for algorithms with tiles of 4 or 2 outputs along an axis.
_WHOLE_TILES: dict[int, tuple[Shape, ...]] = {
    1: tuple((x,) for x in (4, 8, 12, 16, 24, 48, 96, 192, 384, 1536)),
    2: (
        *((4, x) for x in (4, 8, 12, 20, 28)), (8, 4), (16, 4), (8, 8), (8, 12), (12, 12), (16, 16), (20, 20), (28, 28), (28, 56), (56, 56),
    ),
    3: ((1, 4, 4), (1, 4, 8), (1, 8, 4), (1, 4, 24), (1, 8, 8), (2, 8, 8), (4, 4, 4), (2, 8, 16), (2, 16, 16), (4, 16, 16), (4, 16, 28)),
}  # fmt: skip
# Largest block of a family: the first of these whose arrays leave half of L2 to the filter, or else the last.
_LARGEST: dict[int, tuple[Shape, ...]] = {
    1: ((1536,), (384,), (192,)),
    2: ((56, 56), (28, 56), (28, 28)),
    3: ((4, 28, 28), (4, 14, 28), (4, 14, 14), (2, 14, 14)),
}
# Most blocks of a family, and the least reduction of the mean time for which a block is added: file size and compile time grow with each.
_MOST, _GAIN = 8, 0.01
# Default ranges of extents for which blocks are chosen, by number of free axes.
_EXTENTS = {1: (1, 2500), 2: (1, 160), 3: (1, 21)}
# Number of sizes along each axis for which blocks are chosen, in geometric progression; by number of axes that vary.
_SIZES = {0: 1, 1: 27, 2: 12, 3: 6}
# A block for AMX counts as an image of so many, as many as the most threads that estimates weigh tasks for. Alone, estimates of few pixels
# are of reading the filter and sharing few tasks: of 64 channels, 3x3 taps and 1x1 to 32x8 pixels, they deviate by 2.0 times from the
# time, not 1.3. By other algorithms, blocks chosen so are slower: 1.26 of the static kernels' time, not 1.21.
_MANY = 8
# Cycles of a block's call in addition to its kernel's.
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
    """Return whether a family is pointwise: each output pixel depends on one input pixel of the same place."""
    ones = (1,) * family.rank
    zeros = ((0,) * family.rank,) * 2
    return (
        family.op == "convolution"
        and family.kernel == ones == family.strides
        and family.pads in (zeros, "same_upper", "same_lower")
    )


def images_of(family: ProblemFamily, problem: Problem) -> tuple[Shape, int]:
    """Return the outputs along each axis that blocks cover in a problem, and the number of such images.

    Of a pointwise convolution, all pixels are one row, and contiguous images are one.
    """
    outputs, count = problem.out_spatial, problem.batch
    if is_flat(family):
        outputs = (*(1,) * (family.rank - 1), prod(outputs))
        if family.data_format == "NXC":
            outputs, count = (*outputs[:-1], outputs[-1] * count), 1
    return outputs, count


def choose_blocks(blocks: Sequence[BlockCost], outputs: Sequence[Shape], reach: Reach | None) -> list[BlockCost]:
    """Return the blocks chosen among candidates for outputs along each axis, the largest first."""
    if not blocks:
        return []
    chosen = choose([each.cost for each in blocks], list(dict.fromkeys(outputs)), _MOST, _GAIN, reach)
    return sorted((blocks[number] for number in chosen), key=lambda each: -prod(each.outputs))


def cover_by(blocks: Sequence[BlockCost], outputs: Sequence[Shape], reach: Reach | None) -> npt.NDArray[np.float64]:
    """Return the cycles to cover outputs along each axis by blocks."""
    return Covers([each.cost for each in blocks], outputs, reach).cycles(range(len(blocks)))


def reach_of(family: ProblemFamily) -> Reach | None:
    """Return the reach of a family's outputs in data; None for transposed convolutions, whose phases differ."""
    f, spans = family, [d * (k - 1) + 1 for k, d in zip(family.kernel, family.dilations, strict=True)]
    if f.op != "convolution":
        return None
    before, behind = ((tuple((span - 1) // 2 for span in spans),) * 2) if isinstance(f.pads, str) else f.pads
    if is_flat(f):
        before = behind = (0,) * f.rank
    return Reach(f.strides, f.kernel, f.dilations, before, behind)


def block_problem(family: ProblemFamily, outputs: Shape) -> Problem:
    """Return the problem of a block of outputs, whose data includes the padding.

    Of a transposed convolution, outputs are a multiple of the stride. Its pads have the phase of the family's, so that a block begins at the
    family's first output, and are so large that no output reads an input before the data.
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
    """Return the problem of a family's largest block."""
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
    """Return the cycles to copy `size` bytes."""
    return cycles({"lines.copy": lines(size)}, target)


def from_memory(problem: Problem, size: int, target: CpuTarget) -> float:
    """Return the cycles to read a filter of `size` bytes from memory."""
    return cycles(cold_lines(problem, size), target)


def cost_of(family: ProblemFamily, outputs: Shape, target: CpuTarget, algorithm: Algorithm, by_taps: bool) -> Cost:
    """Return a block's cost, with reading its filter from memory in each call if no cache keeps it.

    If it sums ranges of taps (`tap_ranges.py`), the cost of sums is estimated by what one tap less saves along the axis with most taps.
    """
    problem = block_problem(family, outputs)
    size = algorithm.filter_bytes(problem, target)
    again = 0.0 if target.keeps(size) else from_memory(problem, size, target)
    own, sums = _among_many(algorithm, problem, target), 0.0
    if by_taps:
        most = max(range(family.rank), key=family.kernel.__getitem__)
        kernel = tuple(k - (axis == most) for axis, k in enumerate(family.kernel))
        fewer = _among_many(algorithm, block_problem(replace(family, kernel=kernel), outputs), target)
        sums = min(max((own - fewer) * family.kernel[most], own / 2), own)
    copy = copy_cycles(bytes_by_name(problem)[DATA], target)
    return Cost(outputs, own - sums + _BLOCK_CYCLES + (0 if by_taps else again), sums + (again if by_taps else 0), copy)


def _among_many(algorithm: Algorithm, problem: Problem, target: CpuTarget) -> float:
    """Return the cycles of a block among many, of which threads compute one each, with filters in L2 where they fit."""
    in_l2 = algorithm.filter_bytes(problem, target) <= target.l2_share
    count = _MANY if algorithm.module == "amx" and in_l2 else 1
    return algorithm.cycles(replace(problem, batch=count), target) / count


def may_range(family: ProblemFamily, algorithm: Algorithm) -> bool:
    """Return whether an algorithm's blocks probably sum ranges of taps: it reads data in place in loops over taps."""
    depthwise = family.in_channels == family.out_channels == family.groups
    return (
        algorithm.name.removesuffix("_ordered") == ("grouped" if depthwise else "direct")
        and (family.op, family.data_format, family.dtype) == ("convolution", "NXC", "f32")
        and max(family.kernel) > 1
    )


def _rank(family: ProblemFamily) -> int:
    return 1 if is_flat(family) else family.rank


def candidates(family: ProblemFamily, target: CpuTarget, algorithm: Algorithm) -> list[BlockCost]:
    """Return an algorithm's candidate blocks, up to the largest size."""
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
    """Return a block's outputs clipped to the outputs, without pads, along fixed axes; of transposed convolutions a multiple of strides."""
    transposed = family.op != "convolution"
    axes = list(zip(family.in_spatial, family.strides, strict=True))
    outputs = (1,) * (family.rank - len(outputs)) + outputs
    limits = [LARGEST if x.is_free or is_flat(family) else x.low * s if transposed else -(-x.low // s) for x, s in axes]
    outputs = tuple(max(min(y, limit), 1) for y, limit in zip(outputs, limits, strict=True))
    return tuple(-(-y // s) * s for y, (_, s) in zip(outputs, axes, strict=True)) if transposed else outputs


def typical_outputs(family: ProblemFamily) -> list[Shape]:
    """Return outputs along each axis from small to large problems within a family's ranges."""
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
    """Return outputs between the least and the greatest given ones, all combinations of a progression along each axis."""
    limits = [(max(min(each), 1), max(*each, 1)) for each in zip(*given, strict=True)]
    count = _SIZES[sum(least < most for least, most in limits)]
    values = [
        dict.fromkeys(round(least * (most / least) ** (at / max(count - 1, 1))) for at in range(count))
        for least, most in limits
    ]
    return list(product(*values))
