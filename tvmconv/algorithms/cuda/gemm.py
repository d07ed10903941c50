"""Windows as matrix multiplications for GPUs: the im2col matrix exists only in tiles, in shared memory.

For each group and combination of phases, outputs [m, n] are the sums over k of data [m, k] times filter [k, n], where
m runs over batch and outputs, n over the group's output channels, k over taps and the group's input channels. Extents
are rounded up to whole tiles; elements beyond are zero, and not stored. Stages, numbered by the window:

    data_tile    the im2col matrix, zero in padding
    filter_tile  the filter's matrix
    acc          the sum, f32
    tile         acc copied out of registers
    part         tile in memory, if the depth is split among blocks
    out          bias added, rounded once to the output type

Both matrices keep the order of memory, so that copies take vectors: `data_by_depth`, `filter_by_depth` and `out_by_rows`
tell which of two indices is the faster.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import te, tirx

from ...dtypes import DTYPE_BYTES
from ...problem import Problem
from ...targets.cuda import CudaTarget
from ..definition import Definition
from ..epilogue import Epilogue
from ..stage_names import ACC, DATA_TILE, FILTER_TILE, OUT, PARTIAL, TILE, stage_name
from ..subconvolution import Expr, SubConvolution
from ..types import zero_outside
from .annotations import LEAST_ASYNCHRONOUS
from .blocks import BlockTile, Extents, rounded_up
from .tiles import MOST_SUMS, MOST_SUMS_BY_ELEMENTS, Tile, best_tile
from .window import cuda_windows, define_cuda

VECTOR_BYTES = 16  # the widest load, store and asynchronous copy of a thread


@dataclass(frozen=True)
class Gemm(SubConvolution):
    """A window of a flattened problem as a batch of matrix multiplications, whose extents are multiples of `tile`."""

    tile: Any  # a BlockTile: a Tile of tensor cores, or an FmaTile

    @property
    def extents(self) -> Extents:
        """The matrix multiplications before rounding up."""
        return extents(self)

    @property
    def rows(self) -> int:
        """M, rounded up to whole tiles."""
        return rounded_up(self.extents.rows, self.tile.rows)

    @property
    def columns(self) -> int:
        """N, rounded up to whole tiles."""
        return rounded_up(self.extents.columns, self.tile.columns)

    @property
    def depth(self) -> int:
        """K of one part of the depth, rounded up to whole steps."""
        return rounded_up(self.extents.depth, self.tile.depth * self.tile.splits) // self.tile.splits

    @property
    def taps(self) -> int:
        """Taps of one phase."""
        return prod(axis.taps for axis in self.axes)

    @property
    def data_by_depth(self) -> bool:
        """Return whether k is the faster index of data: channels last."""
        return self.problem.data_format == "NXC"

    @property
    def filter_by_depth(self) -> bool:
        """Return whether k is the faster index of the filter."""
        return (self.problem.op == "convolution") == (self.problem.filter_format == "OIX")

    @property
    def out_by_rows(self) -> bool:
        """Return whether m is the faster index of outputs: channels first."""
        return self.problem.data_format == "NCX"

    @property
    def channels_outside(self) -> bool:
        """Return whether k is (channel, tap), the order of OIX filters, not (tap, channel): for data channels first, which allow both."""
        return self.problem.op == "convolution" and self.problem.filter_format == "OIX" and not self.data_by_depth

    @property
    def data_vector(self) -> int:
        """Elements of data in an aligned vector that is contiguous, and wholly in or out of bounds."""
        if self.data_by_depth:
            return self._vector(self.channels)
        in_place = all(
            a.taps == a.stride == a.phases == 1 and not a.padded and a.inputs == a.outputs for a in self.axes
        )
        return self._vector(self.axes[-1].outputs) if in_place else 1

    @property
    def filter_vector(self) -> int:
        """Elements of the filter in such a vector."""
        problem = self.problem
        if self.channels_outside:
            return self._vector(self.channels * self.taps)
        if problem.filter_format == "OIX" and prod(problem.kernel) > 1:
            return 1
        return self._vector(self.channels if self.filter_by_depth else self.outputs)

    @property
    def out_vector(self) -> int:
        """Elements of the output in such a vector."""
        if not self.out_by_rows:
            return self._vector(self.outputs)
        in_order = all(a.phases == 1 and a.always_inside and a.store_extent == a.outputs for a in self.axes)
        # TVM's code generation cannot broadcast the bias to eight f32.
        return min(4, self._vector(self._area)) if in_order and self.problem.op == "convolution" else 1

    @property
    def most_sums(self) -> int:
        """Fragments of sums that a warp has registers for, with fewer if elements cannot be copied asynchronously."""
        least = DTYPE_BYTES[self.problem.dtype] * min(self.data_vector, self.filter_vector)
        return MOST_SUMS if least >= LEAST_ASYNCHRONOUS else MOST_SUMS_BY_ELEMENTS

    @property
    def _area(self) -> int:
        return prod(axis.outputs for axis in self.axes)

    def _vector(self, together: int) -> int:
        most = VECTOR_BYTES // DTYPE_BYTES[self.problem.dtype]
        return min(most, together & -together)

    def split_batch(self, b: Expr) -> tuple[Expr, list[Expr]]:
        """Return the group and the phases of matrix multiplication `b`."""
        phases: list[Expr] = []
        for axis in reversed(self.axes):
            phases.insert(0, b % axis.phases)
            b = b // axis.phases
        return b, phases

    def split_row(self, m: Expr, vector: int = 1) -> tuple[Expr, list[Expr]]:
        """Return the image and the outputs of row `m`; `vector` neighbouring rows are in one row of outputs."""
        per, last = self.axes[-1].outputs // vector, m // vector
        ys: list[Expr] = [last % per * vector + m % vector]
        m = last // per
        for axis in reversed(self.axes[:-1]):
            ys.insert(0, m % axis.outputs)
            m = m // axis.outputs
        return m, ys

    def split_depth(self, k: Expr, vector: int) -> tuple[list[Expr], Expr]:
        """Return the taps and the channel of depth `k`; `vector` neighbouring channels are of one tap.

        Expressions that do not depend on an element's place in its vector are written without it, because TVM may fail to simplify.
        """
        if self.channels_outside:
            channel, tap = k // self.taps, k % self.taps
        else:
            per, group = self.channels // vector, k // vector
            tap, channel = group // per, group % per * vector + k % vector
        ks: list[Expr] = []
        for axis in reversed(self.axes):
            ks.insert(0, tap % axis.taps)
            tap = tap // axis.taps
        return ks, channel

    def store_index(self, indices: list[Expr]) -> tuple[Expr, Expr | None]:
        """Return the flat output offset of `out` at `indices` (b, m, n), and where it is inside the output."""
        b, m, n = indices
        g, phases = self.split_batch(b)
        image, ys = self.split_row(m)
        offset, inside = super().store_index([image, g, *phases, *ys, n])
        bounds = [
            *_below(m, self.extents.rows, self.rows, self.out_vector if self.out_by_rows else 1),
            *_below(n, self.extents.columns, self.columns, 1 if self.out_by_rows else self.out_vector),
            *([inside] if inside is not None else []),
        ]
        return offset, tirx.all(*bounds) if bounds else None


def define_gemm(problem: Problem, target: CudaTarget) -> Definition:
    """Define a problem by matrix multiplications with the best tile by the model for the largest of them."""

    def chosen(windows: list[SubConvolution], largest: Extents) -> Tile:
        tile = best_tile(largest, problem.dtype, target)
        most = min(Gemm(each.problem, each.index, each.axes, tile).most_sums for each in windows)
        return tile if tile.sums <= most else best_tile(largest, problem.dtype, target, most)

    return define_tiled(problem, chosen)


def define_tiled(problem: Problem, chosen: Callable[[list[SubConvolution], Extents], BlockTile]) -> Definition:
    """Define a problem by matrix multiplications with the tile that `chosen` returns for its windows and the largest of them."""
    windows = cuda_windows(problem)
    tile = chosen(windows, max((extents(window) for window in windows), key=lambda each: each.products))
    return define_cuda(problem, express, lambda flat, index, axes: Gemm(flat, index, axes, tile))


def extents(window: SubConvolution) -> Extents:
    """Return the matrix multiplications of a window."""
    axes = window.axes
    return Extents(
        batch=window.groups * prod(axis.phases for axis in axes),
        rows=window.problem.batch * prod(axis.outputs for axis in axes),
        columns=window.outputs,
        depth=prod(axis.taps for axis in axes) * window.channels,
    )


def express(gemm: Any, data: te.Tensor, weights: te.Tensor, epilogue: Epilogue) -> te.Tensor:
    """Return the window's `out`: axes (matrix multiplication, m, n)."""
    number, rows, columns = gemm.index, gemm.rows, gemm.columns
    # Each part of the depth has a batch.
    each = gemm.extents.batch
    batch = gemm.tile.splits * each
    read_data, read_filter = _data_tile(gemm, data, batch), _filter_tile(gemm, weights, batch)
    k = te.reduce_axis((0, gemm.depth), name="k")

    def total(b: Expr, m: Expr, n: Expr) -> Expr:
        return te.sum(read_data(b, m, k).astype("float32") * read_filter(b, k, n).astype("float32"), axis=k)

    acc = te.compute((batch, rows, columns), total, name=stage_name(ACC, number))
    if gemm.out_by_rows:
        tile = te.compute((batch, columns, rows), lambda b, n, m: acc(b, m, n), name=stage_name(TILE, number))
    else:
        tile = te.compute((batch, rows, columns), lambda b, m, n: acc(b, m, n), name=stage_name(TILE, number))

    if gemm.tile.splits > 1:
        whole = tile
        tile = te.compute(whole.shape, lambda *indices: whole(*indices), name=stage_name(PARTIAL, number))

    def rounded(b: Expr, m: Expr, n: Expr) -> Expr:
        parts = [s * each + b for s in range(gemm.tile.splits)]
        value = sum(tile(part, n, m) if gemm.out_by_rows else tile(part, m, n) for part in parts)
        channel = gemm.split_batch(b)[0] * gemm.outputs + n
        bounds = _below(n, gemm.extents.columns, columns, 1 if gemm.out_by_rows else gemm.out_vector)
        return epilogue(value, channel, gemm.store_index([b, m, n])[0], bounds=bounds)

    return te.compute((each, rows, columns), rounded, name=stage_name(OUT, number))


def _data_tile(gemm: Gemm, data: te.Tensor, batch: int) -> Callable[[Expr, Expr, Expr], Expr]:
    """Return ``read(b, m, k)`` of the tile of the im2col matrix that is copied to shared memory."""
    each, depth, by_depth = gemm.extents.batch, gemm.depth, gemm.data_by_depth

    def element(b: Expr, m: Expr, k: Expr) -> Expr:
        b, k = b % each, b // each * depth + k
        g, phases = gemm.split_batch(b)
        along_m, along_k = (1, gemm.data_vector) if by_depth else (gemm.data_vector, 1)
        image, ys = gemm.split_row(m, along_m)
        taps, c = gemm.split_depth(k, along_k)
        x = gemm.coordinates(phases, ys, taps)
        bounds = [
            *_below(m, gemm.extents.rows, gemm.rows, along_m),
            *_below(k, gemm.extents.depth, depth * gemm.tile.splits, along_k),
            *gemm.inside(x),
        ]
        return zero_outside(bounds, data(*gemm.data_indices(image, x, g, c)), data.dtype)

    name = stage_name(DATA_TILE, gemm.index)
    if by_depth:
        return te.compute((batch, gemm.rows, depth), element, name=name)
    copy = te.compute((batch, depth, gemm.rows), lambda b, k, m: element(b, m, k), name=name)
    return lambda b, m, k: copy(b, k, m)


def _filter_tile(gemm: Gemm, weights: te.Tensor, batch: int) -> Callable[[Expr, Expr, Expr], Expr]:
    """Return ``read(b, k, n)`` of the tile of the filter that is copied to shared memory."""
    each, depth, by_depth = gemm.extents.batch, gemm.depth, gemm.filter_by_depth

    def element(b: Expr, k: Expr, n: Expr) -> Expr:
        b, k = b % each, b // each * depth + k
        g, phases = gemm.split_batch(b)
        along_n, along_k = (1, gemm.filter_vector) if by_depth else (gemm.filter_vector, 1)
        taps, c = gemm.split_depth(k, along_k)
        bounds = [
            *_below(k, gemm.extents.depth, depth * gemm.tile.splits, along_k),
            *_below(n, gemm.extents.columns, gemm.columns, along_n),
        ]
        return zero_outside(bounds, weights(*gemm.filter_indices(g, phases, taps, c, n)), weights.dtype)

    name = stage_name(FILTER_TILE, gemm.index)
    if not by_depth:
        return te.compute((batch, depth, gemm.columns), element, name=name)
    copy = te.compute((batch, gemm.columns, depth), lambda b, n, k: element(b, k, n), name=name)
    return lambda b, k, n: copy(b, n, k)


def _below(index: Expr, extent: int, rounded_up: int, vector: int) -> list[Expr]:
    """Return the condition, alike for a vector, under which an index is below `extent`; none if that was not rounded up."""
    return [index // vector < extent // vector] if extent != rounded_up else []
