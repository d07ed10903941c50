"""OpenVINO's operations that take elements by their places, or write them there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from onnx import TensorProto

from ..onnx.writer import shape_array
from .layer import Array, IrLayer

_LAST = 2**63 - 1


def _slice(layer: IrLayer) -> str:
    axes = layer.axes(4) if layer.count > 4 else list(range(layer.static(1)[0]))
    starts, stops, steps = (layer.integers(place) for place in (1, 2, 3))
    return layer.op("Slice", layer.input(0), starts, stops, shape_array(*axes), steps)


def _slice_by_masks(layer: IrLayer) -> str:
    """Write StridedSlice as a Slice, then a Squeeze of shrunk axes and an Unsqueeze of new ones."""
    (count,) = layer.static(1)
    masks = {
        name: [*layer.given.get(f"{name}_mask", []), *[0] * count][:count]
        for name in ("begin", "end", "new_axis", "shrink_axis", "ellipsis")
    }
    steps = layer.numbers(3, [1] * count)
    whole = layer.rank() - sum(not masks["new_axis"][at] and not masks["ellipsis"][at] for at in range(count))
    taken: list[tuple[int, int]] = []  # positions in begins and ends, each with the axis of the data
    shrunk, added, axis, place = [], [], 0, 0
    for at in range(count):
        if masks["ellipsis"][at]:
            axis, place = axis + whole, place + whole
        elif masks["new_axis"][at]:
            added.append(place)
            place += 1
        else:
            taken.append((at, axis))
            if masks["shrink_axis"][at]:
                shrunk.append(axis)
            else:
                place += 1
            axis += 1
    data = layer.input(0)
    if taken:
        places = [at for at, _ in taken]
        kept = [1 if masks["shrink_axis"][at] else steps[at] for at in places]
        begins, ends = _find_bounds(layer, places, masks, kept)
        data = layer.op("Slice", data, begins, ends, shape_array(*(axis for _, axis in taken)), shape_array(*kept))
    data = layer.op("Squeeze", data, shape_array(*shrunk)) if shrunk else data
    return layer.op("Unsqueeze", data, shape_array(*added)) if added else data


def _find_bounds(
    layer: IrLayer, places: Sequence[int], masks: Mapping[str, Sequence[int]], steps: Sequence[int]
) -> list[str | Array]:
    """Return the begins and ends of slices, as constants if they are fixed."""
    bounds: list[str | Array] = []
    for which, mask in ((1, masks["begin"]), (2, masks["end"])):
        parts: list[str | Array] = []
        for at, step in zip(places, steps, strict=True):
            if masks["shrink_axis"][at]:
                parts.append(_take_one(layer, at, which))
            elif mask[at]:
                first = (which == 1) == (step > 0)
                parts.append(shape_array((0 if first else _LAST) if step > 0 else (-_LAST if first else _LAST)))
            else:
                parts.append(_take_bound(layer, which, at))
        if all(isinstance(each, np.ndarray) for each in parts):
            bounds.append(np.concatenate([each for each in parts if isinstance(each, np.ndarray)]))
        else:
            bounds.append(layer.op("Concat", *parts, axis=0))
    return bounds


def _take_bound(layer: IrLayer, which: int, at: int) -> str | Array:
    numbers = layer.integers(which)
    if isinstance(numbers, np.ndarray):
        return numbers[at : at + 1]
    return layer.op("Gather", numbers, shape_array(at), axis=0)


def _take_one(layer: IrLayer, at: int, which: int) -> str | Array:
    """Return the begin (`which` is 1) or the end of a shrunk axis's only element; for the last, -1, the end is the axis's."""
    begin = _take_bound(layer, 1, at)
    if which == 1:
        return begin
    if isinstance(begin, np.ndarray):
        return begin + 1 if begin[0] != -1 else shape_array(_LAST)
    return layer.op("Add", begin, shape_array(1))


def _gather(layer: IrLayer) -> str:
    (axis,) = layer.axes(2)
    batch = int(layer.given.get("batch_dims", 0))
    indices = layer.integers(1)
    if batch % max(layer.rank(1), 1) == 0:
        return layer.op("Gather", layer.input(0), indices, axis=axis)
    batch %= layer.rank(1)
    rank, more = layer.rank(), layer.rank(1) - batch
    between = range(batch, axis)
    data = layer.op("Transpose", layer.input(0), perm=[*range(batch), axis, *between, *range(axis + 1, rank)])
    made = layer.op("GatherND", data, layer.op("Unsqueeze", indices, shape_array(-1)), batch_dims=batch)
    moved = [batch + more + at for at in range(len(between))]
    rest = range(batch + more + len(between), rank + more - 1)
    return layer.op("Transpose", made, perm=[*range(batch), *moved, *range(batch, batch + more), *rest])


def _gather_elements(layer: IrLayer) -> str:
    return layer.op("GatherElements", layer.input(0), layer.integers(1), axis=int(layer.given["axis"]))


def _gather_rows(layer: IrLayer) -> str:
    batch = int(layer.given.get("batch_dims", 0))
    made = layer.op("GatherND", layer.input(0), layer.integers(1), batch_dims=batch)
    if batch > 1 and layer.rank(0) + layer.rank(1) - layer.static(1)[-1] - 1 - batch != len(layer.out_shape()):
        return layer.op("Reshape", made, shape_array(*layer.out_static()))  # version 5 joins the batch axes
    return made


def _scatter(layer: IrLayer) -> str:
    """Write ScatterUpdate as ScatterND of rows, after moving its axis to the front."""
    (axis,) = layer.axes(3)
    rank, many = layer.rank(), layer.rank(1)
    order = [axis, *range(axis), *range(axis + 1, rank)]
    data, updates = layer.input(0), layer.input(2)
    if axis:
        data = layer.op("Transpose", data, perm=order)
        perm = [*range(axis, axis + many), *range(axis), *range(axis + many, rank - 1 + many)]
        updates = layer.op("Transpose", updates, perm=perm)
    made = layer.op("ScatterND", data, layer.op("Unsqueeze", layer.integers(1), shape_array(-1)), updates)
    return layer.op("Transpose", made, perm=[order.index(at) for at in range(rank)]) if axis else made


_REDUCTIONS = {"none": "none", "sum": "add", "prod": "mul", "min": "min", "max": "max"}


def _reduction(layer: IrLayer) -> str:
    name = str(layer.given.get("reduction", "none")).lower()
    if name not in _REDUCTIONS or (name != "none" and not layer.given.get("use_init_val", True)):
        raise ValueError(
            f"reduces by {name}{'' if layer.given.get('use_init_val', True) else ' without what was there'}"
        )
    return _REDUCTIONS[name]


def _scatter_elements(layer: IrLayer) -> str:
    (axis,) = layer.axes(3)
    taken = layer.input(0), layer.integers(1), layer.input(2)
    return layer.op("ScatterElements", *taken, axis=axis, reduction=_reduction(layer))


def _scatter_rows(layer: IrLayer) -> str:
    taken = layer.input(0), layer.integers(1), layer.input(2)
    return layer.op("ScatterND", *taken, reduction=_reduction(layer))


def _take_top(layer: IrLayer) -> list[str]:
    """Write TopK; to sort by index, by a second TopK of the indices."""
    axis = int(layer.given["axis"]) % layer.rank()
    (count,) = layer.numbers(1)
    largest, by = int(layer.given["mode"].lower() == "max"), str(layer.given["sort"]).lower()
    values, places = layer.split("TopK", 2, layer.input(0), shape_array(count), axis=axis, largest=largest)
    if by == "index":
        _, order = layer.split("TopK", 2, places, shape_array(count), axis=axis, largest=0)
        values, places = (layer.op("GatherElements", each, order, axis=axis) for each in (values, places))
    return [values, layer.cast(places, 1) if layer.out_type(1) != TensorProto.INT64 else places]


def _one_hot(layer: IrLayer) -> str:
    (depth,) = layer.numbers(1)
    axis = int(layer.given["axis"]) % (layer.rank() + 1)
    rows = np.arange(depth, dtype=np.int64).reshape(-1, *[1] * (layer.rank() - axis))
    indices = layer.op("Unsqueeze", layer.integers(0), shape_array(axis))
    is_one = layer.op("Equal", indices, rows)
    if layer.given.get("negative_indices_mode", "ignore_negative") == "normalize":
        is_one = layer.op("Or", is_one, layer.op("Equal", indices, rows - depth))
    return layer.op("Where", is_one, layer.input(2), layer.input(3))


def _sample(layer: IrLayer) -> str:
    given = layer.given
    mode = {"bilinear": "linear", "bicubic": "cubic", "nearest": "nearest"}[str(given["mode"]).lower()]
    padding = str(given["padding_mode"]).lower()
    return layer.op(
        "GridSample", *layer.inputs(), mode=mode, padding_mode=padding, align_corners=int(given["align_corners"])
    )


def _align(layer: IrLayer) -> str:
    given = layer.given
    aligned = str(given.get("aligned_mode", "asymmetric")).lower()
    modes = {"asymmetric": "output_half_pixel", "half_pixel_for_nn": "half_pixel", "half_pixel": "half_pixel"}
    if aligned not in modes:
        raise ValueError(f"is aligned by {aligned}")
    return layer.op(
        "RoiAlign", layer.input(0), layer.input(1), layer.integers(2), mode=str(given["mode"]).lower(),
        output_height=int(given["pooled_h"]), output_width=int(given["pooled_w"]), sampling_ratio=int(given["sampling_ratio"]),
        spatial_scale=float(given["spatial_scale"]), coordinate_transformation_mode=modes[aligned],
    )  # fmt: skip


INDEXING: Mapping[str, Callable[[IrLayer], str | list[str]]] = {
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_rows,
    "GridSample": _sample,
    "OneHot": _one_hot,
    "ROIAlign": _align,
    "ScatterElementsUpdate": _scatter_elements,
    "ScatterNDUpdate": _scatter_rows,
    "ScatterUpdate": _scatter,
    "Slice": _slice,
    "StridedSlice": _slice_by_masks,
    "TopK": _take_top,
}
