"""Nodes that move: transposes, reshapes, parts, gathers, scatters."""

from __future__ import annotations

import numpy as np

from .draw import Draw

_Name = str | None
_INT = np.int64


def _real(value: np.ndarray) -> bool:
    return value.dtype == np.float32


def move(state: Draw, name: str, value: np.ndarray) -> _Name:
    """Transposes, reshapes, axes of one."""
    rank, kind = (
        value.ndim,
        state.pick(
            [
                "Transpose",
                "Transpose",
                "Reshape",
                "Reshape",
                "Flatten",
                "Squeeze",
                "Unsqueeze",
                "DepthToSpace",
                "SpaceToDepth",
                "shape",
            ]
        ),
    )
    if kind == "Transpose":
        if not rank:
            return None
        return state.node(
            kind,
            [name],
            **({"perm": state.random.sample(range(rank), rank)} if state.pick([True, True, False]) else {}),
        )
    if kind == "Reshape":
        if rank >= 2 and state.pick([True, False]):
            shape = [0, *([0] if rank > 2 and state.pick([True, False]) else []), -1]
        else:
            shape = state.pick(
                [[-1], [value.size], [1, -1], [-1, 1], [*value.shape[:1], -1], [-1, value.shape[-1] if rank else 1]]
            )
            factor = next((each for each in (2, 3, 5) if rank and value.shape[-1] % each == 0), 1)
            shape = state.pick([shape, [*value.shape[:-1], factor, -1]])
        return state.node(kind, [name, state.constant(shape, _INT)])
    if kind == "Flatten":
        return state.node(kind, [name], axis=state.random.randint(-rank, rank))
    if kind == "Squeeze":
        ones = [at - state.pick([0, rank]) for at, size in enumerate(value.shape) if size == 1]
        return (
            state.node(kind, [name, state.constant(ones[:1], _INT)] if state.pick([True, False]) else [name])
            if ones
            else None
        )
    if kind == "Unsqueeze":
        return state.node(kind, [name, state.constant([state.axis(rank + 1)], _INT)])
    if kind == "shape":  # as exporters write it: a size that is read, and a shape that is put together
        if rank < 2:
            return None
        sizes = state.node("Shape", [name])
        first = state.node("Gather", [sizes, state.constant(0, _INT)], axis=0)
        first = state.node("Unsqueeze", [first, state.constant([0], _INT)])
        return state.node("Reshape", [name, state.node("Concat", [first, state.constant([-1], _INT)], axis=0)])
    if rank != 4 or not _real(value):
        return None
    if kind == "DepthToSpace":
        return (
            state.node(kind, [name], blocksize=2, mode=state.pick(["DCR", "CRD"])) if value.shape[1] % 4 == 0 else None
        )
    return state.node(kind, [name], blocksize=2) if value.shape[2] % 2 == value.shape[3] % 2 == 0 else None


def part(state: Draw, name: str, value: np.ndarray) -> _Name:
    """Slices, splits, concatenations, pads, tiles."""
    rank = value.ndim
    if not rank:
        return None
    kind, axis = (
        state.pick(["Slice", "Slice", "Split", "Concat", "Concat", "Pad", "Pad", "Tile", "Expand", "CenterCropPad"]),
        state.axis(rank),
    )
    size = value.shape[axis]
    if kind == "Slice":
        step = state.pick([1, 1, 2, -1, -2])
        begin, end = state.pick([(0, size), (1, size), (0, -1), (-3, 2**31 - 1), (1, 3), (0, 2**63 - 1)])
        begin, end = (
            (begin, end) if step > 0 else (state.pick([-1, size - 1, 2**31 - 1]), state.pick([-(2**63), -size - 1, 0]))
        )
        return state.node(kind, [name, *(state.constant([each], _INT) for each in (begin, end, axis, step))])
    if kind == "Split":
        if size < 2:
            return None
        parts = state.pick([[1, size - 1], [size // 2, size - size // 2]])
        return state.node(kind, [name, state.constant(parts, _INT)], 2, axis=axis)
    if kind == "Concat":
        same = [
            name,
            *(
                each
                for each, other in state.values.items()
                if other.dtype == value.dtype and _joins(other.shape, value.shape, axis)
            ),
        ]
        return state.node(kind, [*state.random.sample(same, min(len(same), 2)), name], axis=axis)
    if kind == "Pad":
        mode = state.pick(["constant", "constant", "reflect", "edge", "wrap"])
        pads = [state.pick([0, 0, 1, 2, *([-1] if mode == "constant" else [])]) for _ in range(2 * rank)]
        fill = (
            [state.constant(state.pick([0, 1.5, -3]), value.dtype)]
            if mode == "constant" and state.pick([True, False])
            else []
        )
        return (
            state.node(kind, [name, state.constant(pads, _INT), *fill], mode=mode) if value.dtype != np.bool_ else None
        )
    if kind == "Tile":
        return state.node(kind, [name, state.constant([state.pick([1, 1, 2, 3]) for _ in range(rank)], _INT)])
    if kind == "Expand":
        return state.node(
            kind,
            [name, state.constant([2, *(state.pick([1, each]) for each in value.shape)][state.pick([0, 1]) :], _INT)],
        )
    if state.opset < 18:
        return None
    return state.node(kind, [name, state.constant([size + state.pick([-1, 1, 3])], _INT)], axes=[axis])


def _joins(one: tuple[int, ...], other: tuple[int, ...], axis: int) -> bool:
    axis %= len(other)
    return len(one) == len(other) and all(
        at == axis or a == b for at, (a, b) in enumerate(zip(one, other, strict=True))
    )


def index(state: Draw, name: str, value: np.ndarray) -> _Name:
    """Gathers, scatters, and the like, at constant places."""
    rank = value.ndim
    if not rank or value.dtype == np.bool_:
        return None
    kind, axis = (
        state.pick(
            [
                "Gather",
                "Gather",
                "GatherElements",
                "GatherND",
                "ScatterElements",
                "ScatterND",
                "OneHot",
                "Trilu",
                "ReverseSequence",
            ]
        ),
        state.axis(rank),
    )
    size = value.shape[axis]

    def places(*shape: int) -> np.ndarray:
        return state.numbers.integers(-size, size, shape)

    if kind == "Gather":
        return state.node(
            kind,
            [name, state.constant(places(*state.pick([(), (3,), (2, 2)])), state.pick([_INT, np.int32]))],
            axis=axis,
        )
    if kind == "GatherElements":
        return state.node(kind, [name, state.constant(places(*value.shape), _INT)], axis=axis)
    if kind == "GatherND":
        depth = state.random.randint(1, rank)
        chosen = np.stack([state.numbers.integers(0, each, (3,)) for each in value.shape[:depth]], -1)
        return state.node(kind, [name, state.constant(chosen, _INT)])
    if kind == "ScatterElements":
        chosen = np.argsort(state.numbers.random(value.shape), axis)
        more = (
            {"reduction": state.pick(["none", "add", "mul", "max", "min"])}
            if state.opset >= 18 and _real(value)
            else {}
        )
        return state.node(
            kind,
            [
                name,
                state.constant(chosen, _INT),
                state.constant(state.numbers.standard_normal(value.shape), value.dtype),
            ],
            axis=axis,
            **more,
        )
    if kind == "ScatterND":
        chosen = state.numbers.permutation(value.shape[0])[:2, None]
        updates = state.constant(state.numbers.standard_normal((len(chosen), *value.shape[1:])), value.dtype)
        more = {"reduction": state.pick(["none", "add"])} if state.opset >= 18 and _real(value) else {}
        return state.node(kind, [name, state.constant(chosen, _INT), updates], **more)
    if kind == "OneHot":
        if value.dtype != np.int64:
            return None
        return state.node(kind, [name, state.constant(6, _INT), state.constant([0, 1])], axis=state.axis(rank))
    if kind == "Trilu":
        return (
            state.node(
                kind,
                [name, *([state.constant(state.pick([-1, 0, 1, 2]), _INT)] if state.pick([True, False]) else [])],
                upper=state.pick([0, 1]),
            )
            if rank >= 2
            else None
        )
    if rank < 2:
        return None
    lengths = state.numbers.integers(1, value.shape[0] + 1, (value.shape[1],))
    return state.node(kind, [name, state.constant(lengths, _INT)], time_axis=0, batch_axis=1)
