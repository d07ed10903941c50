"""The tensor expressions of windows whose lanes run along a row of the output: for planar layouts, or few output channels.

The same windows as in window.py with other roles: a vector holds neighbouring outputs of a row, and each
filter element is broadcast. Stages:

    data_pad     data widened to f32, zero-padded, channel by channel  (absent when data can be read in place)
    data_phases  every s-th column of the copy together    (only with a stride s along the row)
    filter_pack  filter widened to f32, in the order of the sum    (absent for f32 unless prepacked)
    acc          the sum, f32, axes (n, g, phases..., outputs but the last..., o, x)
    tile         acc copied out of registers              (only where the store is not by whole vectors)
    out          bias added, rounded once to the output type; a row's phases, where neighbours, come last
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from tvm import te, tirx

from ...checks import within_reach
from ...problem import Problem
from ...targets.cpus import L1_BYTES, L1_WAY_BYTES, L1_WAYS
from ...targets.target import CpuTarget
from ..axes import convolution_axes
from ..backprop import interleaved_axes
from ..constant import covers_data
from ..definition import Definition, assemble
from ..epilogue import Epilogue
from ..flatten import flatten
from ..shapes import F32_BITS, FEW_OUTPUTS, IN_FLIGHT, SSE_LANES, divisors, lane_count
from ..stage_names import ACC, DATA_PAD, DATA_PHASES, FILTER_PACK, OUT, TILE, stage_name
from ..subconvolution import Expr, SubConvolution, store_index
from ..types import widen
from . import cost

# An element of pixels laid into planes: few channels fill no vectors, so each is loaded by itself.
TRANSPOSE_PIXELS = 3.5
# Room that a task may have for copies of rows. Beyond what the launcher keeps for a thread (31 MiB), each task asks the
# system for it: 32 to 3 channels of f16 in rows of 262143 took 0.6 s, and take 0.005.
MOST_ROW_BYTES = 8 * 1024 * 1024
MAX_UNROLLED = 128  # multiply-adds in a loop body; more only grows the code
SHARED = 3  # registers for data that the rows of a tile share
MOST_CHANNELS = 16  # of a tile, beside whose sums a register holds the row's data and another the broadcast


@dataclass(frozen=True)
class RowWindow(SubConvolution):
    """A sub-convolution whose vectors are neighbouring outputs of a row.

    Attributes
    ----------
    lanes
        Outputs in a vector.
    row
        Outputs computed along the last axis, whole vectors.
    prepacked
        Whether the filter is prepacked, so that it lies in the order of the sum.
    """

    lanes: int
    row: int
    prepacked: bool


def covers(problem: Problem, target: CpuTarget) -> str | None:
    """Return None if the algorithm computes the problem on the target, else why not."""
    if problem.data_format == "NXC" and problem.out_channels > FEW_OUTPUTS:
        return f"channels lie together in {problem.data_format}, and there are more than {FEW_OUTPUTS} output channels"
    return covers_data(problem, target)


def define(problem: Problem, target: CpuTarget, prepacked: bool = False) -> Definition:
    """Define `problem` by windows whose lanes run along a row; with `prepacked`, as it is best where the filter is prepacked."""
    windows = planar_windows(problem, target, prepacked)
    return assemble(
        problem, flatten(problem), windows, express_planar, [planar_store_index(window) for window in windows]
    )


def define_prepacked(problem: Problem, target: CpuTarget) -> Definition | None:
    """Return the definition whose filter lies in the order of the sum, where several channels are summed for several."""
    several = min(problem.in_channels, problem.out_channels) > problem.groups
    return define(problem, target, prepacked=True) if problem.dtype == "f32" and several else None


def planar_windows(problem: Problem, target: CpuTarget, prepacked: bool) -> list[RowWindow]:
    """Return the windows of `define`."""
    flat = flatten(problem)
    made = convolution_axes(flat) if flat.op == "convolution" else interleaved_axes(flat)
    return [
        _rounded_up(RowWindow(flat, number, axes, 1, axes[-1].outputs, prepacked), target)
        for number, axes in enumerate(made)
    ]


def cycles(problem: Problem, target: CpuTarget) -> float:
    """Return the cycles of a problem, its filter prepacked."""
    return sum(_window_cycles(window, target) for window in planar_windows(problem, target, True))


def _window_cycles(window: RowWindow, target: CpuTarget) -> float:
    axes, batch = window.axes, window.problem.batch
    rows = batch * window.groups * window.outputs * prod(axis.phases for axis in axes)
    vectors = rows * prod(axis.outputs for axis in axes[:-1]) * window.row / window.lanes
    tile = min(_shared_cycles(window, each[0], each[1], target) for each in tiles(window, target))
    sums = vectors * window.channels * prod(axis.taps for axis in axes) * tile
    copied = 0.0
    if stages_planes(window):
        elements = batch * prod(axis.extent for axis in axes) * window.problem.in_channels
        # Columns a stride apart are copied together after that.
        passes = [cost.COPY] * (axes[-1].stride > 1)
        passes.append(TRANSPOSE_PIXELS if window.problem.data_format == "NXC" else cost.COPY)
        copied = elements * sum(passes)
    stored = 0.0 if _lie_together(window) else cost.outputs(window) * window.problem.out_channels * cost.STORE
    return sums * cost.multiply_add(window.lanes, target) + copied + stored


def _rounded_up(window: RowWindow, target: CpuTarget) -> RowWindow:
    """Return the window with its row rounded up to whole vectors."""
    outputs, full = window.axes[-1].outputs, target.vector_bits // F32_BITS
    if outputs < full or not _lie_together(window):
        lanes = lane_count(outputs, target)
        if window.outputs == 1 and lanes > max(SSE_LANES, outputs) and _lie_together(window):
            lanes //= 2  # depthwise: two vectors that overlap rather than one whose lanes are left over
        return replace(window, lanes=lanes, row=-(-outputs // lanes) * lanes)
    # Some vectors more, which repeat others, where they divide into better tiles.
    least = -(-outputs // full)
    rows = [replace(window, lanes=full, row=vectors * full) for vectors in range(least, least + 4)]
    rows = [each for each in rows if each is rows[0] or overlaps(each)]
    return min(
        rows,
        key=lambda each: each.row * min(tile_cycles(each, tile[0], tile[1], target) for tile in tiles(each, target)),
    )


def tiles(window: RowWindow, target: CpuTarget) -> list[tuple[int, int]]:
    """Return how many channels and vectors of a row a tile may have together.

    Each vector takes a register for its data and one for each sum; one more holds the broadcast.
    """
    registers, phases = target.vector_registers, row_phases(window)
    fitting = []
    for channels in divisors(window.outputs, max(1, min(MOST_CHANNELS, registers - 2) // phases)):
        most = max(1, (registers - 1) // (channels * phases + 1))
        fitting += [(channels, vectors) for vectors in divisors(window.row // window.lanes, most)]
    return fitting


def tile_cycles(window: RowWindow, channels: int, vectors: int, target: CpuTarget) -> float:
    """Cycles per multiply-add of a tile, and part of its loads.

    A shifted vector crosses two cache lines, and comes from the second level cache where the sum has many channels; a
    broadcast shares the load ports, and is an instruction of its own with AVX2 (tiles of 8 channels and one vector took 1.7
    times as long as counted without, those of 4 and 3 1.1 times, on one Zen 3 core).
    """
    broadcast = 0.5 if target.vector_bits == 512 else 1.0
    sums = channels * row_phases(window)
    far = 4 * window.lanes * vectors * window.channels > L1_BYTES // 2
    return (max(sums * vectors, IN_FLIGHT) + (2.0 if far else 1.0) * vectors + broadcast * sums) / (sums * vectors)


def _shared_cycles(window: RowWindow, channels: int, vectors: int, target: CpuTarget) -> float:
    """Cycles per multiply-add of a tile, as `tile_cycles`, where rows share the loads of their data and one broadcast."""
    rows = shared_rows(window, vectors, target.vector_registers)
    if rows == 1:
        return tile_cycles(window, channels, vectors, target)
    axis, sums = window.axes[-2], rows * vectors * row_phases(window)
    loads = vectors * ((rows - 1) * axis.stride / axis.taps + 1)
    return (max(sums, IN_FLIGHT) + loads + row_phases(window)) / sums


def shared_rows(window: RowWindow, vectors: int, registers: int) -> int:
    """Return how many rows a tile of a depthwise convolution has: their taps share loads, each of which crosses cache lines.

    Its sums take half of the registers, or what the filter, where registers can hold it, and the shared data leave.
    """
    if len(window.axes) == 1 or window.outputs > 1 or window.axes[-2].taps == 1:
        return 1
    sums = vectors * row_phases(window)
    taps = prod(axis.taps for axis in window.axes) * window.channels
    beside = registers - taps - SHARED
    most = min(registers // 2, beside if beside > 0 else registers, MAX_UNROLLED // taps)
    return divisors(window.axes[-2].outputs, max(1, most // sums))[-1]


def row_phases(window: RowWindow) -> int:
    """Return how many phases' sums a tile holds."""
    return window.axes[-1].phases if interleaves(window) else 1


def interleaves(window: RowWindow) -> bool:
    """Whether a row's phases are neighbours in the output, in order, so that together they fill whole vectors."""
    axis = window.axes[-1]
    return axis.phases > 1 and axis.store_index(1, 0) == axis.store_index(0, 0) + 1


def _lie_together(window: RowWindow) -> bool:
    """Whether neighbouring outputs of a row, all its phases taken together, are neighbours in the output."""
    together = window.problem.op == "convolution" or window.problem.strides[-1] == 1 or interleaves(window)
    return window.problem.data_format == "NCX" and together and window.axes[-1].always_inside


def overlaps(window: RowWindow) -> bool:
    """Whether the last vector of a row begins before the one before it ends, so that it ends with the row.

    Both compute and store the same sums of what they share: nothing outside of the row is read or written. TVM does not
    bound the part of such a row that a task copies, and gives each task room for all of it, which must not be too much.
    """
    outputs = window.axes[-1].outputs
    if window.row == outputs or outputs < window.lanes or not _lie_together(window):
        return False
    copied = 4 * window.problem.in_channels * window.axes[-1].extent
    return len(window.axes) > 1 or not _copies(window) or copied <= MOST_ROW_BYTES


def _column(window: RowWindow, x: Expr) -> Expr:
    """Return the output of a row that its element x computes."""
    if not overlaps(window):
        return x
    lanes, last = window.lanes, window.axes[-1].outputs - window.lanes
    return tirx.min(x // lanes * lanes, last) + x % lanes


def stages_planes(window: RowWindow) -> bool:
    """Whether data is padded, widened or laid out anew before it is read."""
    return _copies(window) or _excess(window) > 0


def _copies(window: RowWindow) -> bool:
    """Whether data is copied whatever is left over of a row."""
    return (
        any(axis.padded for axis in window.axes)
        or window.axes[-1].stride != 1
        or window.problem.dtype != "f32"
        or window.problem.data_format == "NXC"
        or _crowded(window)
    )


def _crowded(window: RowWindow) -> bool:
    """Whether a row's data of all channels would lie in one set of the first level cache, and several tiles read it."""
    plane = F32_BITS // 8 * prod(window.problem.in_spatial)
    several = len(window.axes) > 1 and window.channels > L1_WAYS and window.outputs > MOST_CHANNELS
    return several and plane % L1_WAY_BYTES == 0


def stores_rows(window: RowWindow) -> bool:
    """Whether whole vectors of a row lie together in the output."""
    return _lie_together(window) and _excess(window) == 0


def _excess(window: RowWindow) -> int:
    """Elements of a row that are computed but not stored."""
    return 0 if overlaps(window) else window.row - window.axes[-1].outputs


def planar_store_index(window: RowWindow) -> Callable[[list[Expr]], tuple[Expr, Expr | None]]:
    """Return the store index of `out`'s elements: as window.store_index, with the last two axes exchanged."""
    rank = len(window.axes)

    def at(indices: list[Expr]) -> tuple[Expr, Expr | None]:
        if interleaves(window):  # the last index is the phase
            indices = [*indices[: 1 + rank], indices[-1], *indices[1 + rank : -1]]
        indices = [*indices[:-2], _column(window, indices[-1]), indices[-2]]
        return store_index(window.problem, window.axes, window.outputs, indices)

    return at


def express_planar(window: RowWindow, data: te.Tensor, weights: te.Tensor, epilogue: Epilogue) -> te.Tensor:
    """Return the window's `out`: axes (n, g, phases..., outputs but the last..., o, x).

    Raises
    ------
    InvalidProblemError
        If a stage has more elements than 32-bit indices reach.
    """
    rank, number = len(window.axes), window.index
    read_data, read_filter = _data(window, data), _filter(window, weights)
    c = te.reduce_axis((0, window.channels), name="c")
    taps = [te.reduce_axis((0, axis.taps), name=f"k{i}") for i, axis in enumerate(window.axes)]

    def total(*indices: Expr) -> Expr:
        n, g, o, x = indices[0], indices[1], indices[-2], indices[-1]
        p, y = indices[2 : 2 + rank], (*indices[2 + rank : -2], _column(window, x))
        product = read_data(n, g * window.channels + c, p, y, taps) * read_filter(g, p, taps, c, o)
        # Phases of a row are unrolled, and its taps unless there are many: no condition is left.
        return te.sum(_where_tapped(window, p, taps, product), axis=[c, *taps])

    last = window.axes[-1]
    phases = tuple(axis.phases for axis in window.axes)
    rows = tuple(axis.outputs for axis in window.axes[:-1])
    shape = (window.problem.batch, window.groups, *phases, *rows, window.outputs, window.row)
    acc = te.compute(shape, total, name=stage_name(ACC, number))
    if not stores_rows(window):
        acc = te.compute(shape, lambda *indices: acc(*indices), name=stage_name(TILE, number))

    before = 1 + rank

    def rounded(*indices: Expr) -> Expr:
        offset = planar_store_index(window)(list(indices))[0]
        if interleaves(window):
            indices = (*indices[:before], indices[-1], *indices[before:-1])
        return epilogue(acc(*indices), indices[1] * window.outputs + indices[-2], offset)

    shape = (*shape[:-1], window.row - _excess(window))
    if interleaves(window):
        shape = (*shape[:before], *shape[before + 1 :], last.phases)
    return te.compute(shape, rounded, name=stage_name(OUT, number))


def _data(window: RowWindow, data: te.Tensor) -> Callable[..., Expr]:
    problem, axes = window.problem, window.axes

    if not stages_planes(window):
        return lambda n, c, p, y, k: data(n, c, *window.coordinates(p, y, k))

    last, lowest = axes[-1], [axis.lowest for axis in axes]
    # Column x lies at (x % stride, x // stride) of the phases: outputs of a row read columns `stride` apart.
    columns = -(-(last.extent + _excess(window) * last.stride) // last.stride)
    extents = [*(axis.extent for axis in axes[:-1]), columns * last.stride]

    def padded(n: Expr, c: Expr, *indices: Expr) -> Expr:
        x = [index + low for index, low in zip(indices, lowest, strict=True)]
        bounds = []
        for axis, extent, low, xx in zip(axes, extents, lowest, x, strict=True):
            bounds += axis.inside(xx, low, extent)
        value = widen(data(n, c, *x) if problem.data_format == "NCX" else data(n, *x, c), problem.dtype)
        return tirx.if_then_else(tirx.all(*bounds), value, tirx.const(0, "float32")) if bounds else value

    shape = (problem.batch, problem.in_channels, *extents[:-1], columns * last.stride)
    taken: Callable[..., Expr] = padded
    # Lowering separates the columns of planes in f32 by shuffles (tvmconv/lowering/cpu/striding.py), LLVM others, without conditions.
    if last.stride == 1 or problem.dtype != "f32" or problem.data_format != "NCX":
        taken = pad = te.compute(
            within_reach(shape, "the copy of data"), padded, name=stage_name(DATA_PAD, window.index)
        )
    if last.stride > 1:
        phases = min(last.stride, last.span)
        shape = within_reach((*shape[:-1], phases, columns), "the copy of data")
        pad = te.compute(
            shape,
            lambda *at: taken(*at[:-2], at[-1] * last.stride + at[-2]),
            name=stage_name(DATA_PHASES, window.index),
        )

    def read(n: Expr, c: Expr, p: Any, y: Any, k: Any) -> Expr:
        spatial = [x - low for x, low in zip(window.coordinates(p, y, k), lowest, strict=True)]
        offset = last.offset(p[-1]) - lowest[-1] + k[-1] * last.dilation
        if last.stride == 1:
            return pad(n, c, *spatial)
        return pad(n, c, *spatial[:-1], offset % last.stride, y[-1] + offset // last.stride)

    return read


def _where_tapped(window: RowWindow, p: Any, k: Any, value: Expr) -> Expr:
    """Return `value`, or 0 beyond the filter's end, where interleaved phases with one tap less find their last."""
    axis, taps = window.axes[-1], window.problem.kernel[-1]
    if not interleaves(window) or axis.taps * axis.phases == taps:
        return value
    return tirx.if_then_else(axis.filter_tap(p[-1], k[-1]) < taps, value, tirx.const(0, "float32"))


def _filter(window: RowWindow, weights: te.Tensor) -> Callable[..., Expr]:
    """Return what reads the filter for a product, ``(g, p, k, c, o)``: in place, or in the order of the sum's loops."""
    problem, axes, rank = window.problem, window.axes, len(window.axes)

    def element(g: Expr, p: Any, k: Any, c: Expr, o: Expr) -> Expr:
        return widen(weights(*window.filter_indices(g, p, k, c, o)), problem.dtype)

    if problem.dtype == "f32" and not window.prepacked:
        return element
    # A tile's channels divide these, which divide the outputs.
    block = divisors(window.outputs, MOST_CHANNELS)[-1]

    def packed(g: Expr, b: Expr, *indices: Expr) -> Expr:
        *p, c = indices[:rank]
        k, (row_phase, o) = indices[rank : 2 * rank], indices[2 * rank :]
        p.append(row_phase)
        return _where_tapped(window, p, k, element(g, p, k, c, b * block + o))

    phases, taps = [axis.phases for axis in axes], [axis.taps for axis in axes]
    shape = (window.groups, window.outputs // block, *phases[:-1], window.channels, *taps, phases[-1], block)
    pack = te.compute(within_reach(shape, "the copy of the filter"), packed, name=stage_name(FILTER_PACK, window.index))
    return lambda g, p, k, c, o: pack(g, o // block, *p[:-1], c, *k, p[-1], o % block)
