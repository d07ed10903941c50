"""Counts of windows' events for several algorithms: copies, transposes, stores, and lines of the filter."""

from __future__ import annotations

from math import gcd, prod

from ....dtypes import DTYPE_BYTES
from ....problem import Problem
from ....targets.cpus import L1_WAY_BYTES, L1_WAYS, L2_WAYS, LINE_BYTES
from ....targets.target import CpuTarget
from ...annotations import PART
from ...subconvolution import Axis, SubConvolution
from ..windows.data import copies_groups
from ..windows.window import FEW_PIXELS, Window
from .cost import Counts, lines

ACROSS_LANES = 16  # lanes across groups of windows of two axes, by which planes are transposed faster
# Rows of a task, which reads the whole filter: more rows would copy fewer rows twice, but their copies would leave L2.
TASK_ROWS = 16


def outputs(window: SubConvolution) -> int:
    """Return the number of a window's outputs of one channel, in all phases and the whole batch."""
    return window.problem.batch * prod(axis.outputs * axis.phases for axis in window.axes)


def count_copies(window: Window, target: CpuTarget, once: bool = False, rows: int = 0) -> Counts:
    """Count the copies of a window's data (padded, widened or transposed): by each task of so many `rows`, or `once` before all."""
    pixels = window.problem.batch * prod(copy_extent(axis) for axis in window.axes)
    again = 1.0 if once else copied_again(window, rows)
    elements = pixels * window.pixel * window.vnni_factor
    kept = count_passed(window.problem, window.element_bytes * pixels * window.pixel, target) if once else {}
    return {copied_element(window): elements * again, **far(window.problem, elements, target), **kept}


def count_passed(problem: Problem, size: float, target: CpuTarget) -> Counts:
    """Count the lines of a copy from planes, of so many bytes before all tasks, that L2 does not keep until tasks read them.

    Neighbouring lines have different pixels' channels, written pages apart, so nothing prefetches them. Half of the share of L3 remains
    beside data and outputs; lines beyond that go to memory and back.
    """
    if problem.data_format == "NXC" or size <= target.l2_share:
        return {}
    return {"lines.passed": lines(size), "lines.passed_memory": lines(max(0.0, size - target.l3_share / 2))}


def copied_again(window: SubConvolution, rows: int, whole: bool = False) -> float:
    """Return the average number of copies of an element of data: each task copies the span of its taps.

    A task has one output along each axis before the last two, and `rows` along the next; 0: all rows, or repeated copies are not counted.
    With `whole`, rows between dilated taps are copied, too.
    """
    again = prod(_count_spans(axis, window, 1) / copy_extent(axis) for axis in window.axes[:-2])
    if not rows or len(window.axes) == 1:
        return again
    axis = window.axes[-2]
    # Only the rows that dilated taps read are counted; and only those in data if rows of padding are not copied.
    band = -(-((rows - 1) * axis.stride + axis.span) // axis.gap)
    band = band if whole else min(band, rows * axis.taps)
    held = max(1.0, axis.outputs / rows * band / copy_extent(axis))
    return again * (min(held, _count_spans(axis, window, rows) / copy_extent(axis)) if _skips_rows(window) else held)


def _count_spans(axis: Axis, window: SubConvolution, rows: int) -> int:
    """Return the elements along an axis that all tasks of `rows` outputs copy, without padding that sums skip."""
    span = (rows - 1) * axis.stride + axis.span
    if not _skips_rows(window):
        return axis.outputs // rows * -(-span // axis.gap)
    firsts = range(axis.lowest, axis.lowest + axis.outputs * axis.stride, rows * axis.stride)
    inside = (min(first + span, axis.inputs) - max(first, 0) for first in firsts)
    return sum(-(-max(0, each) // axis.gap) for each in inside)


def _skips_rows(window: SubConvolution) -> bool:
    return isinstance(window, Window) and window.skips_rows


def copy_extent(axis: Axis) -> int:
    """Return the elements of a copy along an axis, without those that the stride of a single tap skips."""
    return -(-axis.extent // axis.gap)


def far(problem: Problem, elements: float, target: CpuTarget, scattered: float = 0) -> Counts:
    """Count the lines of planes that L2 does not keep while channels are gathered; `scattered` is the share of scattered elements."""
    size = DTYPE_BYTES[problem.types.data] * elements
    if problem.data_format == "NXC" or size <= target.l2_share:
        return {}
    return {"lines.planes": lines(size), "elements.scattered": elements * scattered}


def rows_kept(window: Window, run: int, target: CpuTarget) -> int:
    """Return the number of filter rows of which L2 keeps `run` bytes, and as many of the next rows, beside data and sums.

    Rows have all output channels. Rows a power of two apart share few sets of L2.
    """
    apart = DTYPE_BYTES[window.problem.types.filter] * window.vnni_factor * window.problem.out_channels
    return target.l2 // 2 // (2 * max(run, gcd(apart, target.l2 // L2_WAYS)))


def stored_lines(problem: Problem, phases: int, target: CpuTarget, window: Window | None = None) -> Counts:
    """Count the lines of an output that L2 does not keep, for each visit by phases of a row, and by groups of a `window`.

    Channels-last pixels are visited again only if they share a line; groups visit lines again that several of them share.
    """
    size = DTYPE_BYTES[problem.types.output] * prod(problem.output_shape)
    if size <= target.l2_share:
        return {}
    visits = float(phases)
    if problem.data_format == "NXC":
        element = DTYPE_BYTES[problem.types.output]
        visits = min(visits, 1 + LINE_BYTES / (element * problem.out_channels))
        if window is not None:
            visits *= min(window.groups, max(1.0, LINE_BYTES / (element * window.stored_together)))
    return {"lines.stored": lines(size) * visits}


def count_stores(window: Window, target: CpuTarget) -> Counts:
    """Count the stores of a window's outputs beyond those of whole vectors of channels."""
    if window.stores_vectors:
        return {}
    elements = outputs(window) * window.groups * window.outputs
    if window.problem.data_format == "NXC":
        return {"elements.store" if window.stored_together == window.outputs else "elements.apart": elements}
    apart = window.stores_apart and window.vnni_factor == 1
    by_planes = _transposing_event(window) if window.stores_rows else "elements.apart"
    again = {"elements.store_apart": elements * (apart + _evict(window))}
    # Neighbours share a line, which the first one loads.
    scattered = 0 if window.stores_rows else 1 / window.row_neighbours
    return {by_planes: elements, **again, **far(window.problem, elements, target, scattered)}


def _evict(window: Window) -> bool:
    """Return whether stores to a part of a row find the lines of the part before evicted; never with one axis.

    A tile stores a part of a row in each plane of its outputs; with lanes across groups, in a plane for each lane.
    """
    return len(window.axes) > 1 and planes_evict(window.problem, window.lanes if window.across else window.outputs)


def planes_evict(problem: Problem, planes: int) -> bool:
    """Return whether the lines at one place in each of `planes` planes of the output exceed their sets of L1."""
    return lines_evict(DTYPE_BYTES[problem.types.output] * prod(problem.out_spatial), planes)


def lines_evict(apart: int, count: int) -> bool:
    """Return whether `count` lines at a distance of `apart` bytes exceed their sets of L1.

    Lines a multiple of a way of L1 apart share one set, those an odd multiple of half a way apart two.
    """
    return count * gcd(apart, L1_WAY_BYTES) > L1_WAYS * L1_WAY_BYTES


def copied_element(window: Window) -> str:
    """Return the event of copying an element of data to a window's layout, with channels in lanes."""
    if window.problem.data_format == "NXC":
        return "elements.copy"
    whole = window.problem.in_channels // window.problem.groups % window.vnni_factor == 0
    together = window.channels if copies_groups(window) else window.pixel
    squares = together % PART == 0 and window.column_gap == 1 and whole
    return _transposing_event(window) if squares and not window.expands else "elements.apart"


def _transposing_event(window: Window) -> str:
    """Return the event of transposing an element between planes and channels in lanes, by squares.

    Across groups, elements of short rows, and widened ones, take less.
    """
    short = window.lanes >= ACROSS_LANES // 2 and 2 * window.axes[-1].outputs <= ACROSS_LANES
    widened = window.lanes == ACROSS_LANES and window.problem.dtype != "f32"
    if window.across and len(window.axes) == 2 and (short or widened):
        return "elements.transpose_across"
    return "elements.transpose_pairs" if window.vnni_factor == 2 else "elements.transpose"


def filter_traffic(window: Window, target: CpuTarget) -> Counts:
    """Count the lines of a filter that L2 does not keep: read again for each TASK_ROWS rows, and from memory if L3 does not keep them.

    The rows of direct's plan do not matter, as a thread's next task finds some lines (benchmarks/results/coefficients.md, `lines.again`).
    """
    size = window.element_bytes * window.groups * window.padded_outputs * window.products
    if size <= target.l2_share:
        return {}  # counted in the cost of the tile, which loads vectors from L2
    kept = target.l3_share * window.vnni_factor
    memory = lines(size) if window.element_bytes * prod(window.problem.filter_shape) > kept else 0.0
    rows = prod(axis.outputs for axis in window.axes[:-1])
    times = window.problem.batch * -(-rows // TASK_ROWS)
    if window.by_blocks and len(window.axes) == 1:  # a task has several images, up to FEW_PIXELS
        times = min(times, -(-window.pixels // FEW_PIXELS))
    name = "lines.streamed" if window.streams_filter else "lines.again"
    return {name: times * lines(size), "lines.memory": memory}
