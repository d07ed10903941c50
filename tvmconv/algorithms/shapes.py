"""Choose the lanes and the row length of a window: the two shape choices that a definition fixes."""

from __future__ import annotations

from math import gcd
from typing import Any

from ..problem import Problem
from ..targets.target import CpuTarget

F32_BITS = 32
SSE_LANES = 4  # lanes of 128 bits, within which a shuffle takes no vector of indices
# A multiply-add takes 4 cycles and one or two start per cycle: fewer accumulators than this leave units idle.
IN_FLIGHT = 8
# Output channels up to which lanes across them are mostly empty.
FEW_OUTPUTS = 8
# Least columns of padding on one side for which whole tiles of a row (4 to 14 outputs) read only padding.
LEAST_SKIPPED = 4


def divisors(number: int, most: int) -> list[int]:
    """Return the divisors of `number` up to `most`."""
    return [d for d in range(1, min(number, most) + 1) if number % d == 0]


def part_counts(number: int, most: int, least: int) -> list[int]:
    """Return the divisors of `number` up to `most`, and the next one if all are below `least`: counts of equal parts.

    Without it, 488 to 1952 channels at 14x14, 61 blocks of channels, were one task.
    """
    counts = divisors(number, most)
    beyond = (count for count in range(most + 1, number + 1) if number % count == 0)
    return [*counts, *([next(beyond)] if counts[-1] < min(least, number) else [])]


def accumulators(target: CpuTarget) -> int:
    """Return the number of vector registers for accumulators: all but those for the filter's vectors and a data broadcast."""
    return target.vector_registers - target.isa.working_registers


def lane_count(outputs: int, target: CpuTarget) -> int:
    """Return the lanes of the vectors that `outputs` channels are cut into: a full vector or half of one.

    Where full vectors start at half the rate, half ones waste fewer lanes for channels that are no multiple of a full one
    (24 = 3 x 8 beats 2 x 16); else fewer vectors are better. Few channels get the least power of two that holds
    them, at least an SSE register.
    """
    full = target.vector_bits // F32_BITS
    if outputs < full:
        return max(4, 1 << (outputs - 1).bit_length())
    halved = target.halves_fast
    return min((full, full // 2), key=lambda lanes: -(-outputs // lanes) * (lanes if halved else 1))


def tile_widths(row: int, target: CpuTarget) -> list[int]:
    """Return the divisors of `row` that fit the accumulators."""
    return [t for t in range(1, accumulators(target) + 1) if row % t == 0]


def row_extent(outputs: int, target: CpuTarget) -> int:
    """Return the `outputs` of a row rounded up to a number that divides into good tiles.

    A tile of t outputs loads each filter vector once for t multiply-adds, so the cost per output is modelled
    as 1 + 1/t; the additional outputs are computed but not stored.
    """
    most = accumulators(target)
    if outputs <= most:
        return outputs

    def cost(row: int) -> float:
        return row * (1 + 1 / max(tile_widths(row, target)))

    # Copying the row costs about 1/16 of a small convolution: rounding up must gain more.
    best = min(range(outputs, outputs + most), key=cost)
    return best if cost(best) < cost(outputs) * (1 - 1 / 16) else outputs


def shuffles(problem: Problem, vnni_factor: int, target: CpuTarget) -> bool:
    """Return whether each vector of outputs holds whole groups that have no more input elements (of `vnni_factor` channels) than outputs.

    Shuffles of two vectors (f32, 28x28, 64 to 32 channels in 8 groups) took three times as long as broadcasts.
    """
    outputs, channels = problem.out_channels // problem.groups, problem.in_channels // problem.groups // vnni_factor
    lanes = lane_count(problem.out_channels, target)
    whole = outputs > 0 and problem.out_channels % lanes == 0 and lanes % outputs == 0
    return whole and 1 < outputs < lanes and 0 < channels <= outputs and problem.data_format == "NXC"


def rotate(c: Any, o: Any, channels: int, outputs: int) -> Any:
    """Return the channel of a group's `channels` that output `o`, one of the group's `outputs`, sums as its `c`-th.

    An output begins with the channel in its own lane, which takes no shuffle if groups have as many outputs, and rotates within 128
    bits before it proceeds to the next.
    """
    together = gcd(SSE_LANES, channels)
    o = o % outputs
    return (o // together + c // together) % (channels // together) * together + (o + c) % together
