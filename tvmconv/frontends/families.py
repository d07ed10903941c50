"""The convolutions of a model with free extents of inputs, as families.

The model is read at two sizes that the free extents allow. Extents that differ between them are free in a family, equal ones are
fixed; pads are free, so that no padding rule is guessed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..errors import InvalidProblemError, SourceError
from ..family import Extent, ProblemFamily
from ..problem import Problem
from . import read_model
from .model import Model, SourceNode

# Extents of the two sizes if one axis is free, as in text or sound, and if several are; batches.
_ROW, _AREA, _BATCHES = (1024, 1536), ((224, 352), (288, 416), (160, 192)), (2, 3)


def read_families(source: str, shapes: Mapping[str, Sequence[Extent]], **options: Any) -> Model:
    """Read a model's convolutions, with families for those that differ between sizes.

    Parameters
    ----------
    source
        As for :func:`tvmconv.read_model`.
    shapes
        Shapes of inputs by name, in which extents may be free; extents of the same name are equal.
    options
        Others of :func:`tvmconv.read_model`.

    Raises
    ------
    SourceError
        If the model cannot be read at a size, or a convolution has other channels or attributes at another.
    """
    first, second = (
        _read(source, {name: _sample(shape, number) for name, shape in shapes.items()}, options) for number in (0, 1)
    )
    others = {node.name: node.problem for node in second.nodes}
    if odd := sorted({node.name for node in first.nodes} ^ others.keys()):
        raise SourceError(
            f"{source}: {odd[0]!r} is a convolution at some sizes and none at others; give the sizes one by one"
        )
    return replace(first, nodes=tuple(_unite(source, node, others[node.name]) for node in first.nodes))


def _sample(shape: Sequence[Extent], number: int) -> tuple[int, ...]:
    """Return one of two sizes of a shape."""
    free = [axis for axis, extent in enumerate(shape) if axis and extent.is_free]
    named: dict[str, int] = {}
    sizes = []
    for axis, extent in enumerate(shape):
        if not axis:
            wanted = _BATCHES[number]
        else:
            wanted = _ROW[number] if len(free) < 2 else _AREA[free.index(axis) % 3 if axis in free else 0][number]
        value = extent.near(wanted)
        if number and extent.is_free and value == extent.near(_BATCHES[0] if not axis else _sample(shape, 0)[axis]):
            value = extent.near(extent.low)
        sizes.append(named.setdefault(extent.name or str(axis), value))
    return tuple(sizes)


def _read(source: str, shapes: Mapping[str, tuple[int, ...]], options: Mapping[str, Any]) -> Model:
    at = ", ".join(f"{name or 'its input'} {'x'.join(map(str, shape))}" for name, shape in shapes.items())
    try:
        model = read_model(source, shapes=shapes, **options)
    except SourceError as error:
        raise SourceError(f"{error} (with {at}); free extents may need a multiple or a range: ?%32[64:4096]") from error
    for skipped in model.skipped:
        raise SourceError(f"{source}: {skipped} (with {at})")
    return model


def any_size(problem: Problem) -> ProblemFamily:
    """Return the family of problems that differ from one in batch, spatial extents and pads alone."""
    return family_like(problem, Extent(), (Extent(),) * problem.rank)


def family_like(problem: Problem, batch: Extent, spatial: tuple[Extent, ...]) -> ProblemFamily:
    """Return the family of problems that differ from one in these extents and in pads alone."""
    return _family([problem], batch, spatial)


def free(node: SourceNode) -> SourceNode:
    """Return a node with a family: its own, or that of any size."""
    return node if node.family else replace(node, family=_of_node(node, any_size(node.problem), [node.problem]))


def served_by(family: ProblemFamily) -> ProblemFamily:
    """Return the family whose kernel serves a node: with free pads, so that nodes with other pads share it."""
    zeros = (0,) * family.rank
    one_tap = family.op == "convolution" and set(family.kernel + family.strides) == {1}
    carried = one_tap and family.pads == (zeros, zeros)
    return family if carried else replace(family, pads="?", output_padding=())


def _of_node(node: SourceNode, family: ProblemFamily, problems: Sequence[Problem]) -> ProblemFamily:
    """Return a family with a node's pads or padding rule, if that is right for all of `problems`."""
    if family.pads != "?":
        return family
    one = node.problem
    own = replace(
        family,
        pads=node.pads or (one.pads_begin, one.pads_end),
        output_padding=() if one.op == "convolution" else one.output_padding,
    )
    return own if all(own.obstacle(each) is None for each in problems) else family


def _unite(source: str, node: SourceNode, other: Problem) -> SourceNode:
    """Return a node with its family, if its problem at another size differs."""
    one = node.problem
    if one == other:
        return node
    batch = Extent() if one.batch != other.batch else Extent(one.batch, one.batch)
    spatial = tuple(Extent() if x != y else Extent(x, x) for x, y in zip(one.in_spatial, other.in_spatial, strict=True))
    try:
        family = _family([one, other], batch, spatial)
    except InvalidProblemError as error:
        raise SourceError(f"{source}: {node.name!r}: {error}") from error
    for each in (one, other):
        if reason := family.obstacle(each):
            raise SourceError(
                f"{source}: {node.name!r} does not scale with the size as one family: {reason}; give the sizes one by one"
            )
    return replace(node, family=_of_node(node, family, (one, other)))


def _family(problems: Sequence[Problem], batch: Extent, spatial: tuple[Extent, ...]) -> ProblemFamily:
    """Return the family of some problems; pads are free unless there are none and no tap could read them."""
    like = problems[0]
    ones, zeros = (1,) * like.rank, (0,) * like.rank
    one_tap = like.op == "convolution" and like.kernel == like.strides == ones
    carried = one_tap and all(p.pads_begin == p.pads_end == zeros for p in problems)
    return ProblemFamily(
        like.op,
        batch,
        like.in_channels,
        spatial,
        like.out_channels,
        like.kernel,
        like.strides,
        like.dilations,
        (zeros, zeros) if carried else "?",
        like.groups,
        like.data_format,
        like.filter_format,
        like.dtype,
        like.bias,
        like.epilogue,
        (),
        like.zero_point,
        like.filter_zero_point,
        like.bias_dtype,
    )
