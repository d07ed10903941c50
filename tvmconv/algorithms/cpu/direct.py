"""Direct convolution: lanes along output channels of one group, or across groups; channels multiplied one by one, in pairs or quads.

The options `across`, `vnni_factor` and `ordered` give seven algorithms: direct, dot (pairs of bf16 or integers), quads (of integers),
grouped (lanes across groups), grouped_dot, and direct_ordered and grouped_ordered, whose sums add products in one order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod

from ...dtypes import DTYPE_BYTES
from ...problem import Problem
from ...targets.target import CpuTarget
from ..annotations import BY_VEX
from ..data_dependence import covers_data
from ..definition import Definition, assemble, requests_of
from ..flatten import flatten
from ..pairs import filter_in_pairs, no_integer_pairs, sum_requests
from ..quads import products_of, quad_types
from ..shapes import accumulators, shuffles
from .direct_plan import plan_windows
from .grouped_plan import evicted_share, grouped_cycles
from .model.cost import Counts, cycles, lines, multiply_add, total
from .model.counts import count_copies, count_stores, filter_traffic, outputs, stored_lines
from .model.tasks import vector_counts
from .windows.express import express
from .windows.filter_parts import has_parts, whole_rows
from .windows.filter_pieces import is_large
from .windows.im2col import im2col
from .windows.make import windows_of
from .windows.paired_taps import by_row_taps, pairs_taps
from .windows.plan import DirectPlan, GroupedPlan
from .windows.tile import (
    best_tile,
    in_row_parts,
    longest_row,
    pixel_cycles,
    reads_in_place,
    rounded_up,
    tile_cycles,
    tiled_by_images,
    wider,
)
from .windows.window import FEW_PIXELS, TOGETHER, Window

# An SSE register of outputs, of which two multiply-adds start per cycle, half the rate of whole vectors. With fewer
# channels per group, lanes across groups are faster even if data is copied for each lane.
LEAST_PER_GROUP = 4
# Least products of a sum for which only the vectors of one tile are packed together: see `_most_together`.
LEAST_STREAMED_PRODUCTS = 128
# Pixels of a task in default schedules, and most tuned ones; copying a part takes a quarter of the time of multiplying these with it.
MOST_TASK_PIXELS = FEW_PIXELS // 4
# Least estimated gain of tiles along a row whose pixels are apart in data.
LEAST_TURNED = 1 / 6
# Least channels for which quads are worth it: two also fit a pair of 16 bits.
LEAST_OF_QUADS = 3
# Least channels of a filter in several parts, each with a loop over channels.
LEAST_CHANNELS_OF_PARTS = 32


def covers(
    problem: Problem, target: CpuTarget, across: bool = False, vnni_factor: int = 1, ordered: bool = False
) -> str | None:
    """Return None if the algorithm computes the problem on the target, else the reason why not."""
    problem = flatten(problem)
    if vnni_factor == 2 and (reason := no_dot(problem, target, integers=True)):
        return reason
    if vnni_factor == 4 and (reason := _no_quads(problem, target)):
        return reason
    per_group = problem.out_channels // problem.groups
    if not across:
        if problem.groups > 1 and per_group < LEAST_PER_GROUP:
            return f"{per_group} output channels per group leave lanes empty; it takes {LEAST_PER_GROUP} or more"
    elif vnni_factor == 2:
        if problem.in_channels // problem.groups % 2 or not shuffles(problem, 2, target):
            return "whole groups of contiguous pairs of channels do not fill vectors"
    elif problem.groups == 1:
        return "there is one group"
    elif per_group >= LEAST_PER_GROUP and (ordered or not shuffles(problem, 1, target)):
        return f"{per_group} output channels per group fill the lanes of one group"
    return covers_data(problem, target)


def no_dot(problem: Problem, target: CpuTarget, integers: bool = False) -> str | None:
    """Return why dot products of pairs do not compute the problem, or None if they do."""
    if problem.is_quantized:
        if reason := no_integer_pairs(target):
            return reason
    elif problem.dtype != "bf16":
        return f"it multiplies bf16{' and integers' if integers else ''}, not {problem.dtype}"
    elif not target.has_dot:
        return f"{target.name} has no {target.isa.dot}"
    if problem.in_channels // problem.groups < 2 and not pairs_taps(problem):
        return "it multiplies pairs of channels, and there is one"
    return None


def _no_quads(problem: Problem, target: CpuTarget) -> str | None:
    """Return why dot products of quads of integers do not compute the problem, or None if they do."""
    if not problem.is_quantized:
        return f"it multiplies integers, not {problem.dtype}"
    if not products_of(target):
        return f"{target.name} has no {' or '.join(sorted(target.isa.quads)) or 'dot products of quads of integers'}"
    if quad_types(problem, products_of(target)) is None:
        products = ", ".join(sorted("".join(types) for types in products_of(target)))
        return f"it multiplies {products}, or data of the other signedness, not a filter with zero point {problem.filter_zero_point}"
    if problem.in_channels // problem.groups < LEAST_OF_QUADS and not pairs_taps(problem):
        return "there are too few channels to fill a quad"
    return None


def define(
    problem: Problem,
    target: CpuTarget,
    across: bool = False,
    vnni_factor: int = 1,
    prepacked: bool = False,
    ordered: bool = False,
) -> Definition:
    """Define `problem` by direct windows, whose elements have `vnni_factor` channels.

    With `prepacked`, the definition is the best one for prepacked filters.
    """
    windows = direct_windows(problem, target, across, vnni_factor, prepacked, ordered=ordered)
    if not (prepacked or across):
        windows = [_by_parts(window, target) for window in windows]
    by_element = vnni_factor == 2 and target.isa.dots_by_element
    planned = plan_windows(windows, target)
    by_element |= vnni_factor == 4 and target.isa.dots_by_element
    vex = [BY_VEX] if vnni_factor == 4 and not by_element and target.isa.quads_by_evex not in target.features else []
    asks = [*requests_of(problem, planned), *vex, *sum_requests(problem, vnni_factor, target)]
    return assemble(problem, flatten(problem), planned, express, vnni_factor, asks, by_element, ordered=ordered)


def define_prepacked(
    problem: Problem, target: CpuTarget, across: bool = False, vnni_factor: int = 1, ordered: bool = False
) -> Definition | None:
    """Return the best definition for prepacked filters; None if it is that of `define`."""
    if across:
        return None
    plain_windows = direct_windows(problem, target, vnni_factor=vnni_factor, ordered=ordered)
    windows = [_by_parts(window, target) for window in plain_windows]
    if not any(window.packs_parts for window in windows):
        if vnni_factor > 1:
            return None
        size = 4 * prod(problem.filter_shape)
        small = problem.dtype == "f32" and size <= min(target.costs.pieces, target.costs.pages)
        packed = direct_windows(problem, target, prepacked=True, ordered=ordered)
        if small and not any(window.extra_vectors for window in packed):
            return None
    return define(problem, target, vnni_factor=vnni_factor, prepacked=True, ordered=ordered)


def direct_windows(
    problem: Problem,
    target: CpuTarget,
    across: bool = False,
    vnni_factor: int = 1,
    prepacked: bool = False,
    arrange: bool = True,
    ordered: bool = False,
) -> list[Window]:
    """Return the windows of `define`; without `arrange`, those of the unflattened problem, with pixels and axes in data's order."""
    return list(_direct_windows(problem, target, across, vnni_factor, prepacked, arrange, ordered))


# Cached for the estimate and the definition; windows with prepacked filters need those with plain ones.
@lru_cache(maxsize=256)
def _direct_windows(
    problem: Problem, target: CpuTarget, across: bool, vnni_factor: int, prepacked: bool, arrange: bool, ordered: bool
) -> tuple[Window, ...]:
    shuffled = across and not ordered and shuffles(problem, vnni_factor, target)
    made = windows_of(flatten(problem) if arrange else problem, target, across)
    if ordered:
        made = [replace(window, ordered=True, rounds_groups=False) for window in made]
    quads = quad_types(problem, products_of(target)) if vnni_factor == 4 else None
    windows = [
        replace(each, vnni_factor=vnni_factor, prepacked=prepacked, shuffles=shuffled, quads=quads) for each in made
    ]
    # The windows of a transposed convolution share the vectors of a tile.
    rounds = wider if len(windows) == 1 else rounded_up
    order = _arrange_pixels if arrange else lambda window, rounds, target: rounds(window, target)
    tiled = [_spread_data(_tile_image(order(window, rounds, target), target), target) for window in windows]
    # Plain and prepacked filters share choices: those of filters in place, whose tiles may differ.
    in_place: list[Window] = []
    if prepacked:
        in_place = direct_windows(problem, target, across, vnni_factor, arrange=arrange, ordered=ordered)
    large = [window.large for window in in_place] or [is_large(window, target) for window in tiled]
    return tuple(_order_tasks(replace(window, large=each), target) for window, each in zip(tiled, large, strict=True))


def _tile_image(window: Window, target: CpuTarget) -> Window:
    """Return the window with tiles of the whole image, if that is worth it and does not constrain tiles of plain filters in place.

    Plain and prepacked filters share choices, and a tile's vectors must be contiguous in a filter that is read in place.
    """
    tiled, plain = tiled_by_images(window, target), replace(window, prepacked=False)
    return tiled if tiled.whole_image and (plain.stages_filter or _by_parts(plain, target).by_parts) else window


def _arrange_pixels(window: Window, rounds: Callable[[Window, CpuTarget], Window], target: CpuTarget) -> Window:
    """Return the window with its pixels in an order that gives good tiles."""
    rounded, turned = rounds(window, target), longest_row(window)
    copied = by_row_taps(rounded) or im2col(rounded, target)
    if copied is not rounded or turned is window:
        return copied
    turned = rounds(turned, target)
    better = pixel_cycles(turned, target) < pixel_cycles(rounded, target) * (1 - LEAST_TURNED)
    return turned if better else rounded


def _spread_data(window: Window, target: CpuTarget) -> Window:
    """Return the window with copied data, if that costs less than reading pixels that share few sets of L1 in place."""
    if not evicted_share(window, window.row, target):
        return window
    ways = [replace(window, spread=spread) for spread in (False, True)]
    return min(ways, key=lambda way: cycles(windows_estimate(plan_windows([way], target), target), target))


def _order_tasks(window: Window, target: CpuTarget) -> Window:
    """Return the window with the order of its tasks."""
    # Plain and prepacked filters share choices: rows are cut as is best for prepacked ones.
    if _by_blocks(replace(window, prepacked=True), target):
        window = in_row_parts(window, target)
    left_over = window.outputs % window.lanes > 0
    window = replace(window, copied_whole=left_over and window.large and window.pixels > accumulators(target))
    return replace(
        window,
        most_together=_most_together(window, target),
        by_blocks=_by_blocks(window, target),
        packs_parts=_packs_parts(window, target),
    )


def _most_together(window: Window, target: CpuTarget) -> int:
    """Return the most vectors of the filter that are packed together: those of a tile if more make its stream slower."""
    if "vectors_by_tile" not in target.costs.pays or window.across:
        return TOGETHER
    vectors = best_tile(window, target)[1]
    return vectors if vectors == 3 or (vectors == 2 and window.products >= LEAST_STREAMED_PRODUCTS) else TOGETHER


def _packs_parts(window: Window, target: CpuTarget) -> bool:
    """Return whether tasks copy the parts of a filter that they use, so that memory is read less than by one copy before.

    Filters that could be read in place are copied for several tiles if they are on too many pages. Other filters are, if L2 does not keep
    them and few pixels are one task, as each task copies its parts again.
    """
    if window.stages_filter:
        together = window.problem.batch * prod(axis.outputs for axis in window.axes[:-2]) == 1
        one_task = together and window.pixels <= MOST_TASK_PIXELS
        kept = 4 * prod(window.problem.filter_shape) // window.vnni_factor <= target.l2_share
        return one_task and not (kept or window.across or window.prepacked)
    return not window.across and window.pixels > accumulators(target) and window.large


def _by_parts(window: Window, target: CpuTarget) -> Window:
    """Return the window with its plain filter taken in parts, in the order of memory, if reading the filter dominates.

    That is for few pixels, whose sums stay in a cache, with a filter that is copied and exceeds L2, or is read in place and exceeds L3; or
    that is copied for one tile, which uses it once. Otherwise a tile's reads are a row of the filter apart, which is bad for the
    TLB and the CPU's own prefetching, and a copy of the whole filter goes to memory and back.
    """
    partial = not (window.ordered or window.sums_filter)  # a sum begins with 0, and has no order
    if not partial or window.pixels > MOST_TASK_PIXELS or window.channels < LEAST_CHANNELS_OF_PARTS:
        return window
    in_place = replace(window, packs_parts=False, rows_in_place=whole_rows(window, target))
    copied, rows = in_place.stages_filter, in_place.rows_in_place is not None and not in_place.stages_filter
    once = reads_once(window, target)
    if copied:
        element, kept = 4 // window.vnni_factor, 0 if once else target.l2_share
    else:
        element, kept = DTYPE_BYTES[window.problem.types.filter], target.l2_share if rows else target.l3_share
    if element * prod(window.problem.filter_shape) <= kept:
        return window
    if rows:
        return replace(in_place, by_parts=True)
    if not all(has_parts(window, vectors, target) for vectors in vector_counts(window, target)[:3]):
        return window
    return replace(window, by_parts=True, packs_parts=copied or not once)


def reads_once(window: Window, target: CpuTarget) -> bool:
    """Return whether one tile has all pixels, and so reads each vector of the filter once, in place."""
    rows = window.problem.batch * prod(axis.outputs for axis in window.axes[:-1])
    return rows == 1 and window.row <= best_tile(window, target)[0]


def _by_blocks(window: Window, target: CpuTarget) -> bool:
    """Return whether a task takes all its pixels of one block of channels before the next, each block's filter being one piece.

    That is for copied filters that L2 does not keep, and few pixels; for any number of pixels of one axis if L2 does not even keep a
    task's part beside the data.
    """
    size = 4 * prod(window.problem.filter_shape) // window.vnni_factor
    if window.across or window.whole_image or not window.stages_filter or size <= target.l2_share:
        return False
    if target.l2 <= target.l2_share:
        return window.few_pixels or len(window.axes) == 1
    return window.few_pixels and all(axis.phases == 1 for axis in window.axes)


def estimate(
    problem: Problem, target: CpuTarget, across: bool = False, vnni_factor: int = 1, ordered: bool = False
) -> Counts:
    """Count the events of a problem, its filter prepacked."""
    windows = direct_windows(problem, target, across, vnni_factor, prepacked=True, ordered=ordered)
    return windows_estimate(plan_windows(windows, target), target)


def plain(
    problem: Problem, target: CpuTarget, across: bool = False, vnni_factor: int = 1, ordered: bool = False
) -> Counts:
    """Count the events of a problem with a plain filter: those of `estimate`, and the copies of the filter."""
    windows = direct_windows(problem, target, across, vnni_factor, ordered=ordered)
    if not across:
        windows = [_by_parts(window, target) for window in windows]
    products = estimate(problem, target, across, vnni_factor, ordered)
    return total(products, *(count_packing(window, target) for window in windows))


def count_packing(window: Window, target: CpuTarget) -> Counts:
    """Count the copy of a window's filter, if there is one."""
    if not window.stages_filter:
        return {}
    elements, together = float(window.groups * window.padded_outputs * window.products), window.sums_lie_together
    size = window.element_bytes * elements
    # A copy of the whole filter that no cache keeps goes to memory and back.
    passed = {"lines.cold": 2 * lines(size)} if size > target.l3_share and not window.packs_parts else {}
    if window.reads_rows:
        return {"elements.copy": elements * window.vnni_factor, **passed}
    if window.problem.op != "convolution" and window.problem.filter_format == "OIX":
        # Whole lines are read, although only some of their taps are the window's.
        elements *= prod(window.problem.kernel) / prod(axis.taps * axis.phases for axis in window.axes)
    if window.vnni_factor == 2:
        together = (together and filter_in_pairs(window.problem)) or window.taps_lie_together
        copied = {"elements.transpose_pairs" if together else "elements.apart": elements * (1 if together else 2)}
    else:
        squares = together or window.taps_are_columns or window.taps_lie_together
        copied = {"elements.transpose" if squares else "elements.apart": elements}
    return {**copied, **passed}


def windows_estimate(windows: Sequence[Window], target: CpuTarget) -> Counts:
    """Count the events of direct windows."""
    counted = [_window_estimate(window, target) for window in windows]
    if windows:
        phases = max(window.axes[-1].phases for window in windows)
        plan = windows[0].plans[0]
        by_groups = isinstance(plan, DirectPlan) and not plan.groups_together
        counted.append(stored_lines(windows[0].problem, phases, target, windows[0] if by_groups else None))
    return total(*counted)


def _window_estimate(window: Window, target: CpuTarget) -> Counts:
    row, inside, once, plan = window.axes[-1], 1.0, False, window.plans[0]
    assert isinstance(plan, (DirectPlan, GroupedPlan))
    (_, width), vectors = plan.tiles, plan.vectors
    if isinstance(plan, GroupedPlan):
        once, pixels = row is window.axes[0], width
        sums = grouped_cycles(window, width, vectors, target, plan.taps_together or plan.taps_unrolled)
        if window.skips_columns or reads_in_place(window):
            inside = prod(axis.met for axis in window.axes)
        elif window.skips_rows:
            inside = prod(axis.met for axis in window.axes[:-1])
    else:
        once, pixels = plan.data_at_once, width * (window.axes[-2].outputs if window.whole_image else 1)
        sums = tile_cycles(window, pixels, vectors, target, alone=True)
        if window.problem.op == "convolution" or max(window.problem.strides) == 1:
            inside *= prod(axis.met for axis in window.axes[:-1]) if window.skips_rows else 1.0
            inside *= row.visited(width) if window.skips_columns else 1.0
    vectors_of_outputs = outputs(window) * window.groups * window.padded_outputs / window.lanes
    products = vectors_of_outputs * prod(axis.taps for axis in window.axes) * window.channels * inside
    arithmetic = products * sums * window.row / row.outputs * multiply_add(window.lanes, target)
    if window.vnni_factor > 1:
        arithmetic *= window.vnni_factor / target.product_rate(window.problem.is_quantized, window.vnni_factor)
    copies = window.stages_data and not (window.across and reads_in_place(window))
    return total(
        {"lanes.scale" if window.across else "tile.scale": arithmetic},
        {"start": vectors_of_outputs * window.row / row.outputs / (pixels * vectors)},
        count_copies(window, target, once, 0 if window.whole_image else plan.rows[1]) if copies else {},
        count_stores(window, target),
        filter_traffic(window, target),
    )
