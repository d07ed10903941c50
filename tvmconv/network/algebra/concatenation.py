"""Rule: replace a convolution of a concatenation of channels by a sum of convolutions of its parts.

Each part gets the slice of the filter for its channels. So an upsampled part, as in a U-Net's decoder, becomes a transposed convolution
(`upsampling`) beside the convolution of the others; and parts that are strided slices of one value become one convolution of that value,
with more taps and a stride.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tvm import relax

from ...targets.target import CpuTarget
from ..ir.constants import static_shape
from ..ir.graph import Graph
from ..ir.problem_of import DTYPES
from .costs import map_cycles, outputs, part_cycles, pass_cycles
from .maps import LinearMap, add, compose
from .reading import filters, levels, write_map
from .rounding import MOST, lost, relative_error, rounds_more
from .upsampling import Upsampled, find_upsampling, is_cheaper, repeating_cycles


@dataclass(frozen=True)
class ChannelPart:
    """A convolution of one or more consecutive parts of a concatenation."""

    fields: tuple[Any, ...]
    map: LinearMap

    def cycles(self, target: CpuTarget) -> float:
        """Return the cost."""
        shape = _joined_shape(self.fields)
        dtype = DTYPES[str(self.fields[0].ty.dtype)]
        copied = pass_cycles(shape, dtype, 2, target) if len(self.fields) > 1 else 0
        return map_cycles(self.map, shape, dtype, target) + copied

    def lost(self, dtype: str) -> float:
        """Return the squared error of rounding its filter."""
        return float(lost(self.map.filter, dtype).sum())

    @property
    def power(self) -> float:
        """Mean square of its outputs, summed over channels, for data of mean square 1."""
        return float((self.map.filter**2).sum())

    def written(self, visit: Callable[[Any], Any], emit: Callable[[Any], Any]) -> Any:
        """Return its operators, applied to the parts."""
        data = [visit(each) for each in self.fields]
        return write_map(self.map, data[0] if len(data) == 1 else emit(relax.op.concat(data, 1)), emit, rows=False)


@dataclass(frozen=True)
class ChannelSplit:
    """The sum of convolutions of the parts of a concatenation."""

    terms: tuple[ChannelPart | Upsampled, ...]

    @property
    def said(self) -> str:
        """Description of the rewrite, in words."""
        moved = sum(isinstance(each, Upsampled) for each in self.terms)
        of = f", {moved} of them transposed, without upsampling" if moved else ""
        return f"a concatenation and its convolution, {len(self.terms)} convolutions{of}"

    def written(self, visit: Callable[[Any], Any], emit: Callable[[Any], Any]) -> Any:
        """Return its operators, applied to the parts."""
        total = None
        for term in self.terms:
            made = term.written(visit, emit)
            total = made if total is None else emit(relax.op.add(total, made))
        return total


@dataclass(frozen=True)
class Gathered:
    """One convolution of a value, instead of a convolution of its concatenated slices."""

    source: Any
    map: LinearMap
    count: int

    @property
    def said(self) -> str:
        """Description of the rewrite, in words."""
        return f"{self.count} slices, their concatenation and its convolution, one kernel"

    def written(self, visit: Callable[[Any], Any], emit: Callable[[Any], Any]) -> Any:
        """Return its operators, applied to the value."""
        return write_map(self.map, visit(self.source), emit, rows=False)


def find_split(graph: Graph, target: CpuTarget) -> Iterator[tuple[Any, ChannelSplit | Gathered]]:
    """Yield convolutions of concatenations that cost less as sums, or as one convolution of the value that the parts are slices of."""
    for variable, level in filters(graph):
        fields = _fields(level.source, graph)
        if not fields or level.map.groups != 1:
            continue
        ends = np.cumsum([int(each.ty.shape[1]) for each in fields])[:-1]
        pieces = [replace(level.map, filter=part, bias=None) for part in np.split(level.map.filter, ends, 1)]
        dtype, shape = DTYPES[str(variable.ty.dtype)], _joined_shape(fields)
        before = map_cycles(level.map, shape, dtype, target) + pass_cycles(shape, dtype, 2, target)
        found: ChannelSplit | Gathered | None = _gather(fields, pieces, level.map, before, graph, target)
        found = found or _split(fields, pieces, level.map, before, graph, target)
        if found is not None:
            yield variable, found


def _gather(
    fields: Sequence[Any], pieces: Sequence[LinearMap], whole: LinearMap, before: float, graph: Graph, target: CpuTarget
) -> Gathered | None:
    maps, dtype = [], DTYPES[str(fields[0].ty.dtype)]
    source = None
    for field, piece in zip(fields, pieces, strict=True):
        level = levels(field, graph, rows=False)[-1]
        made = compose(piece, level.map) if level.parts and level.map.is_slice else None
        if made is None or len(graph.readers(field)) != 1 or not (source is None or level.source.same_as(source)):
            return None
        source = level.source
        maps.append(made)
        before += sum(part_cycles(part, given, dtype, target) for part, given in level.parts)
    merged = add(maps)
    if source is None or merged is None:
        return None
    merged = replace(merged, bias=whole.bias)
    if map_cycles(merged, static_shape(source.ty) or (), dtype, target) >= before:
        return None
    return None if rounds_more(merged, [[whole]], dtype) else Gathered(source, merged, len(fields))


def _split(
    fields: Sequence[Any], pieces: Sequence[LinearMap], whole: LinearMap, before: float, graph: Graph, target: CpuTarget
) -> ChannelSplit | None:
    """Return the cheapest sum; None: the concatenation is cheaper."""
    dtype = DTYPES[str(fields[0].ty.dtype)]
    moved = {at: find_upsampling(piece, fields[at], graph) for at, piece in enumerate(pieces)}
    transposed = {at: each for at, each in moved.items() if each is not None and is_cheaper(each, target)}
    before += sum(repeating_cycles(each, target) for each in transposed.values())
    made = (int(fields[0].ty.shape[0]), whole.outputs, *outputs(whole, _joined_shape(fields)))
    plain = [at for at in range(len(fields)) if at not in transposed]
    best: tuple[float, ChannelSplit] | None = None
    for parts in ([plain] if plain else [], [[at] for at in plain]):
        terms: list[ChannelPart | Upsampled] = [*transposed.values()]
        for places in parts:
            filter_ = np.concatenate([pieces[at].filter for at in places], 1)
            terms.append(ChannelPart(tuple(fields[at] for at in places), replace(pieces[0], filter=filter_)))
        if len(terms) == 1 and not transposed:
            continue
        # The last term has the bias.
        terms[-1] = replace(terms[-1], map=replace(terms[-1].map, bias=whole.bias))
        cost = sum(each.cycles(target) for each in terms) + pass_cycles(made, dtype, 2 * (len(terms) - 1), target)
        if cost < before and (best is None or cost < best[0]) and not _rounds_more(terms, whole, dtype):
            best = cost, ChannelSplit(tuple(terms))
    return None if best is None else best[1]


def _rounds_more(terms: Sequence[ChannelPart | Upsampled], whole: LinearMap, dtype: str) -> bool:
    """Return whether a sum, which rounds its filters and all outputs but the last, has a larger error than one convolution."""
    if dtype == "f32":
        return False
    after = sum(each.lost(dtype) for each in terms) + relative_error(dtype) * sum(each.power for each in terms[:-1])
    return after > MOST * float(lost(whole.filter, dtype).sum())


def _fields(variable: Any, graph: Graph) -> list[Any]:
    """Return the parts of a concatenation of channels with one reader; none for other variables."""
    call = graph.call(variable, "relax.concat")
    if call is None or len(graph.readers(variable)) != 1 or call.attrs.axis is None:
        return []
    fields = graph.fields(call.args[0])
    whole = all(isinstance(each, relax.Var) and static_shape(each.ty) is not None for each in fields)
    return fields if whole and len(fields) > 1 and int(call.attrs.axis) % variable.ty.ndim == 1 else []


def _joined_shape(fields: Sequence[Any]) -> tuple[int, ...]:
    shapes = [static_shape(each.ty) or () for each in fields]
    return (shapes[0][0], sum(shape[1] for shape in shapes), *shapes[0][2:])
