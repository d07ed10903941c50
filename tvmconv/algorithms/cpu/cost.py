"""What an algorithm takes on a CPU, by estimate: the parts that each algorithm adds up with numbers of its own.

Everything is in cycles of one core. The constants were fitted to the records of a Zen 5 and to default schedules of the
suites on one core of a Zen 3; ``python -m benchmarks.defaults --output FILE`` writes estimates beside times.
"""

from __future__ import annotations

from math import prod

from ...problem import DTYPE_BYTES
from ...targets.cpus import L1_WAY_BYTES, L1_WAYS
from ...targets.target import CpuTarget
from ..shapes import F32_BITS
from ..subconvolution import Axis, SubConvolution
from .window import FEW_PIXELS, Window

# An element copied in order (widened, padded); one transposed from planes to channels in lanes or back; the same for pairs of
# channels of bf16, two of which are copied at once; and one stored by itself.
COPY, TRANSPOSE, TRANSPOSE_PAIRS, STORE = 0.5, 1.8, 0.9, 1.0
# One transposed by 16 lanes that run across the groups of two axes: of 17 depthwise layers on one core of a Zen 4 0.3 to 1.0. Of
# 116 channels, which fill no such vectors, it takes 1.5, and of long rows or volumes up to 7.
TRANSPOSE_ACROSS, ACROSS_LANES = 0.5, 16
# What a transposed element takes more whose line is stored to again after others: its neighbours in a row of planes are of other
# phases, or the line is evicted. Of 8 layers with phases on one core of a Zen 4 the median is 2.4, up to 21. With 16 registers it
# is in the scale of planar's tiles, and of phases of pairs not measured.
APART = 3.0
L3_BYTES_PER_CYCLE = 8
# Rows of a task, each of which reads the whole filter: with more, fewer are copied twice, but their copies leave L2.
TASK_ROWS = 16
TASK_CYCLES = 2000  # starting a task: a microsecond or less
THREADS = (2, 4, 8)  # thread counts over which an uneven share of tasks is averaged


def multiply_add(lanes: int, target: CpuTarget) -> float:
    """Return the cycles that a multiply-add of so many lanes takes: half of a full vector takes half where one port is full."""
    narrow = target.halves_fast and 2 * lanes * F32_BITS <= target.vector_bits
    return 0.5 if narrow else 1 / target.multiply_adds


def met(axis: Axis, tile: int = 1) -> float:
    """Return the share of an axis' taps, of all outputs, that whole tiles of outputs must visit to meet all data.

    1 if there is no tap or output.
    """
    count = 0
    for meeting in (axis.meets(phase, k) for phase in range(axis.phases) for k in range(axis.taps)):
        if meeting:
            count += min(axis.outputs, (-(-meeting.stop // tile) - meeting.start // tile) * tile)
    return count / (axis.phases * axis.taps * axis.outputs) if axis.taps * axis.outputs else 1.0


def outputs(window: SubConvolution) -> int:
    """Return the number of a window's outputs of one channel: of all phases, and the whole batch."""
    return window.problem.batch * prod(axis.outputs * axis.phases for axis in window.axes)


def copied(window: Window, once: bool = False) -> float:
    """Return the cycles of the copies of a window's data, padded, widened or transposed: each task's, or one before all."""
    pixels = window.problem.batch * prod(held(axis) for axis in window.axes)
    again = 1.0 if once else copied_again(window)
    return pixels * window.pixel * window.vnni_factor * transposed(window) * again


def copied_again(window: SubConvolution) -> float:
    """Return how often tasks copy data: each has one output of an axis before the last two, and copies what all its taps span."""
    return prod(axis.outputs * -(-axis.span // axis.gap) / held(axis) for axis in window.axes[:-2])


def held(axis: Axis) -> int:
    """Return how many elements along an axis a copy has: without what the stride of a single tap leaves out.

    128 to 16 channels at 20x20x20, one tap with stride 2, in NCX, take 83 us by direct on one core of a Zen 3, and 133 by planar,
    68 and 101 on one of a Zen 4; planar was taken where all elements counted.
    """
    return -(-axis.extent // axis.gap)


def stored(window: Window, target: CpuTarget) -> float:
    """Return the cycles of storing a window's outputs beyond those of whole vectors of channels."""
    if window.stores_vectors:
        return 0.0
    elements = outputs(window) * window.groups * window.outputs
    if window.problem.data_format == "NXC":
        return elements * STORE
    apart = window.stores_apart and window.vnni_factor == 1
    waits = 0.0 if target.vector_bits < 512 else APART * (apart + _evict(window))
    return elements * (transposed(window) + waits)


def _evict(window: Window) -> bool:
    """Whether parts of rows that are stored to more planes than a set of L1 has lines all lie in one set.

    Planes then are a multiple of 4 KiB, and the second part of a line finds it evicted. One core of a Zen 4, bf16, microseconds:
    3 to 32 channels at 320x320, stride 2, dot 3856 and planar 2283. Not of one axis: 72 to 72 at 16x16x16, 1144 and 1788.
    """
    plane = DTYPE_BYTES[window.problem.dtype] * prod(window.problem.out_spatial)
    return len(window.axes) > 1 and window.outputs > L1_WAYS and plane % L1_WAY_BYTES == 0


def transposed(window: Window) -> float:
    """Return the cycles of an element that is copied to or from a window's channels in lanes."""
    if window.problem.data_format == "NXC":
        return COPY
    if window.across and window.lanes == ACROSS_LANES and len(window.axes) == 2 and _planar_is_slow(window):
        return TRANSPOSE_ACROSS
    return TRANSPOSE_PAIRS if window.vnni_factor == 2 else TRANSPOSE


def _planar_is_slow(window: Window) -> bool:
    """Whether planes are slow to sum as they lie: they are widened first, or their rows are half a vector or less.

    Else planar is estimated too high as well, at 1.4 to 1.6 of its time with 5 or 7 taps. One core of a Zen 4, microseconds by
    planar and grouped, f32: 1024 at 7x7 57 and 21; 512 at 8x8 28 and 11; 144 at 15x15, 5x5 taps, dilation 2, 30 and 70; bf16: 64 at
    112x112, stride 2, 296 and 168.
    """
    return window.problem.dtype != "f32" or 2 * window.axes[-1].outputs <= ACROSS_LANES


def filter_traffic(window: Window, target: CpuTarget) -> float:
    """Return the cycles of reading a filter that L2 does not keep once more for each task's rows."""
    size = 4 * window.groups * window.padded_outputs * window.products
    if size <= target.l2_share:
        return 0.0  # counted in the tile, which loads its vectors from there
    rows = prod(axis.outputs for axis in window.axes[:-1])
    times = window.problem.batch * -(-rows // TASK_ROWS)
    if window.by_blocks and len(window.axes) == 1:  # a task has several images, until it has more than a few pixels
        times = min(times, -(-window.pixels // FEW_PIXELS))
    return times * size / L3_BYTES_PER_CYCLE


def uneven(tasks: int) -> float:
    """How much longer the busiest of some threads works than the average."""
    return sum(-(-tasks // threads) * threads / tasks for threads in THREADS) / len(THREADS)
