"""OpenVINO's operations that move, repeat or join elements, and those of shapes and ranges."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from onnx import TensorProto

from ..onnx.writer import shape_array
from .layer import IrLayer


def _reshape(layer: IrLayer) -> str:
    if None not in layer.out_shape():
        return layer.op("Reshape", layer.input(0), shape_array(*layer.out_static()))
    kept = layer.given.get("special_zero", True) or not layer.is_fixed(1) or 0 not in layer.numbers(1)
    return layer.op("Reshape", layer.input(0), layer.integers(1), allowzero=int(not kept))


def _transpose(layer: IrLayer) -> str:
    order = layer.numbers(1) or [*range(layer.rank())][::-1]
    return layer.op("Transpose", layer.input(0), perm=order)


def _squeeze(layer: IrLayer) -> str:
    """Write Squeeze; listed axes whose extents are not 1 stay."""
    shape, rank = layer.shape(), len(layer.out_shape())
    axes = layer.axes(1, [])
    if not axes:
        axes = [axis for axis, extent in enumerate(shape) if extent == 1]
    if len(shape) - len(axes) != rank:
        axes = [axis for axis in axes if shape[axis] == 1]
    return layer.op("Squeeze", layer.input(0), shape_array(*axes)) if axes else layer.op("Identity", layer.input(0))


def _unsqueeze(layer: IrLayer) -> str:
    rank = len(layer.out_shape())
    return layer.op("Unsqueeze", layer.input(0), shape_array(*(axis % rank for axis in layer.numbers(1))))


def _concatenate(layer: IrLayer) -> str:
    return layer.op("Concat", *layer.inputs(), axis=int(layer.given["axis"]))


def _split(layer: IrLayer) -> list[str]:
    (axis,) = layer.axes(1)
    count = len(layer.outputs)
    return layer.split("Split", count, layer.input(0), axis=axis, num_outputs=count)


def _split_variously(layer: IrLayer) -> list[str]:
    (axis,), lengths, extent = layer.axes(1), layer.numbers(2), layer.shape()
    if -1 in lengths:
        size = extent[axis]
        if size is None:
            raise ValueError("slices an axis with a free extent")
        lengths[lengths.index(-1)] = size - sum(lengths) - 1
    return layer.split("Split", len(lengths), layer.input(0), shape_array(*lengths), axis=axis)


def _broadcast(layer: IrLayer) -> str:
    mode = str(layer.given.get("mode", "numpy")).lower()
    data = layer.input(0)
    if mode == "explicit":
        (rank,) = layer.static(1)
        kept = layer.numbers(2)
        added = [axis for axis in range(rank) if axis not in kept]
        data = layer.op("Unsqueeze", data, shape_array(*added)) if added else data
    elif mode not in ("numpy", "bidirectional"):
        raise ValueError(f"broadcasts by {mode}; networks broadcast as NumPy does")
    shape = layer.out_shape()
    return layer.op("Expand", data, layer.integers(1) if None in shape else shape_array(*layer.out_static()))


def _tile(layer: IrLayer) -> str:
    """Write Tile; repeats or data with fewer axes than the other get leading ones."""
    repeats, rank = layer.numbers(1), layer.rank()
    data = layer.input(0)
    if len(repeats) > rank:
        data = layer.op("Unsqueeze", data, np.arange(len(repeats) - rank))
    return layer.op("Tile", data, shape_array(*[1] * (rank - len(repeats)), *repeats))


def _pad(layer: IrLayer) -> str:
    mode = str(layer.given["pad_mode"]).lower()
    begins, ends = layer.numbers(1), layer.numbers(2)
    if mode == "symmetric":
        data = layer.input(0)
        for axis, (begin, end, extent) in enumerate(zip(begins, ends, layer.static(), strict=True)):
            if begin or end:
                places = np.pad(np.arange(extent), (max(begin, 0), max(end, 0)), mode="symmetric")
                places = places[max(-begin, 0) : len(places) - max(-end, 0)]
                data = layer.op("Gather", data, places, axis=axis)
        return data
    number = [layer.input(3)] if layer.count > 3 and mode == "constant" else []
    return layer.op("Pad", layer.input(0), shape_array(*begins, *ends), *number, mode=mode)


def _rearrange(layer: IrLayer, data: str, inner: Sequence[int], order: Sequence[int], outer: Sequence[int]) -> str:
    """Write a reshape, a transposition and a reshape."""
    moved = layer.op("Transpose", layer.op("Reshape", data, shape_array(*inner)), perm=list(order))
    return layer.op("Reshape", moved, shape_array(*outer))


def _depth_to_space(layer: IrLayer) -> str:
    size, mode = int(layer.given["block_size"]), str(layer.given["mode"]).lower()
    if layer.rank() == 4:
        order = "DCR" if mode == "blocks_first" else "CRD"
        return layer.op("DepthToSpace", layer.input(0), blocksize=size, mode=order)
    batch, channels, *spatial = layer.static()
    rank = len(spatial)
    blocks, depth = [size] * rank, channels // size**rank
    if mode == "blocks_first":
        inner = [batch, *blocks, depth, *spatial]
        block_axes, depth_axis = list(range(1, rank + 1)), rank + 1
    else:
        inner = [batch, depth, *blocks, *spatial]
        block_axes, depth_axis = list(range(2, rank + 2)), 1
    order_ = [0, depth_axis, *(axis for at in range(rank) for axis in (rank + 2 + at, block_axes[at]))]
    return _rearrange(layer, layer.input(0), inner, order_, layer.out_static())


def _space_to_depth(layer: IrLayer) -> str:
    size, mode = int(layer.given["block_size"]), str(layer.given["mode"]).lower()
    if layer.rank() == 4 and mode == "blocks_first":
        return layer.op("SpaceToDepth", layer.input(0), blocksize=size)
    batch, channels, *spatial = layer.static()
    rank = len(spatial)
    inner = [batch, channels, *(each for extent in spatial for each in (extent // size, size))]
    blocks, places = ([start + 2 * at for at in range(rank)] for start in (3, 2))
    order = [0, *blocks, 1, *places] if mode == "blocks_first" else [0, 1, *blocks, *places]
    return _rearrange(layer, layer.input(0), inner, order, layer.out_static())


def _space_to_batch(layer: IrLayer) -> str:
    """Write SpaceToBatch: a Pad, then positions within blocks moved in front of the batch."""
    blocks, begins, ends = (layer.numbers(place) for place in (1, 2, 3))
    batch, *sizes = layer.static()
    data = layer.input(0)
    if any((*begins, *ends)):
        data = layer.op("Pad", data, shape_array(*begins, *ends), mode="constant")
    padded = [size + begin + end for size, begin, end in zip(sizes, begins[1:], ends[1:], strict=True)]
    inner = [batch, *(each for size, block in zip(padded, blocks[1:], strict=True) for each in (size // block, block))]
    rank = len(padded)
    order = [*(2 * at + 2 for at in range(rank)), 0, *(2 * at + 1 for at in range(rank))]
    return _rearrange(layer, data, inner, order, layer.out_static())


def _batch_to_space(layer: IrLayer) -> str:
    blocks, begins, ends = (layer.numbers(place) for place in (1, 2, 3))
    batch, *sizes = layer.static()
    rank = len(sizes)
    inner = [*blocks[1:], batch // int(np.prod(blocks)), *sizes]
    order = [rank, *(each for at in range(rank) for each in (rank + 1 + at, at))]
    whole = [batch // int(np.prod(blocks)), *(size * block for size, block in zip(sizes, blocks[1:], strict=True))]
    data = _rearrange(layer, layer.input(0), inner, order, whole)
    if not any((*begins, *ends)):
        return data
    stops = [size - end for size, end in zip(whole, ends, strict=True)]
    return layer.op("Slice", data, shape_array(*begins), shape_array(*stops))


def _shuffle(layer: IrLayer) -> str:
    shape, groups = layer.static(), int(layer.given["group"])
    axis = int(layer.given["axis"]) % len(shape)
    inner = [*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :]]
    order = [*range(axis), axis + 1, axis, *range(axis + 2, len(inner))]
    return _rearrange(layer, layer.input(0), inner, order, shape)


def _roll(layer: IrLayer) -> str:
    """Write Roll as two slices of each axis, joined."""
    data, shape = layer.input(0), layer.static()
    axes, shifts = layer.axes(2), layer.numbers(1)
    if len(shifts) == 1:
        shifts *= len(axes)
    for axis, shift in zip(axes, shifts, strict=True):
        start = -shift % shape[axis]
        if start:
            parts = ((start, shape[axis]), (0, start))
            sliced = (layer.op("Slice", data, *(shape_array(each) for each in (*part, axis))) for part in parts)
            data = layer.op("Concat", *list(sliced), axis=axis)
    return data


def _find_shape(layer: IrLayer) -> str:
    shape = layer.op("Shape", layer.input(0))
    return shape if layer.given.get("output_type", "i64") == "i64" else layer.cast(shape)


def _count(layer: IrLayer) -> str:
    whole = layer.out_type() == TensorProto.INT64
    numbers = [layer.integers(place) if whole else layer.cast(layer.input(place)) for place in range(3)]
    return layer.op("Range", *numbers)


def _reverse(layer: IrLayer) -> str:
    """Write Reverse; its axes are given as numbers or as a mask."""
    axes = layer.numbers(1)
    if layer.given["mode"] == "mask":
        axes = [axis for axis, is_reversed in enumerate(axes) if is_reversed]
    if not axes:
        return layer.op("Identity", layer.input(0))
    last, before = [-1] * len(axes), [np.iinfo(np.int64).min] * len(axes)
    return layer.op("Slice", layer.input(0), *map(np.array, (last, before, axes, last)))


def _reverse_sequences(layer: IrLayer) -> str:
    batch, time = (int(layer.given[name]) % layer.rank() for name in ("batch_axis", "seq_axis"))
    order = [time, batch, *(axis for axis in range(layer.rank()) if axis not in (time, batch))]
    data = layer.op("Transpose", layer.input(0), perm=order)
    made = layer.op("ReverseSequence", data, layer.integers(1), batch_axis=1, time_axis=0)
    return layer.op("Transpose", made, perm=[order.index(axis) for axis in range(layer.rank())])


def _same(layer: IrLayer) -> str:
    return layer.op("Identity", layer.input(0))


MOVES: Mapping[str, Callable[[IrLayer], str | list[str]]] = {
    "BatchToSpace": _batch_to_space,
    "Broadcast": _broadcast,
    "Concat": _concatenate,
    "DepthToSpace": _depth_to_space,
    "Identity": _same,
    "Pad": _pad,
    "Range": _count,
    "Reshape": _reshape,
    "Reverse": _reverse,
    "ReverseSequence": _reverse_sequences,
    "Roll": _roll,
    "ShapeOf": _find_shape,
    "ShuffleChannels": _shuffle,
    "SpaceToBatch": _space_to_batch,
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    "VariadicSplit": _split_variously,
}
