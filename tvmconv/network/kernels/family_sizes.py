"""Sizes of a network's families: the problems of its layers for inputs of typical extents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import tvm
from tvm import tirx

from ...errors import InvalidProblemError
from ...family import Extent, ProblemFamily
from ...lowering.common.rewrites import substitute
from ...problem import Problem
from ..ir.extents import extents_of, has_extents
from ..ir.free import dims_of, product, simplify, symbols_in
from ..ir.graph import MAIN
from .fuse_epilogue import Followed

# Ranges of typical extents, and how many are taken of each: one free axis (text or sound), several (images), and the batch (1 where other
# extents are free).
_ROW, _SIDE, _BATCH, COUNT = (64, 65536), (64, 2048), (1, 32), 6


def sizes_of(chains: Iterable[Followed], mod: tvm.IRModule) -> dict[ProblemFamily, list[Problem]]:
    """Return each family's problems, one for each layer that uses it, for inputs of typical extents; none without ranges of extents."""
    found: dict[ProblemFamily, list[Problem]] = {}
    inputs = typical_extents(mod) if has_extents(mod) else []
    for chain in chains:
        family = chain.family
        if family is None or not inputs:
            continue
        own = found.setdefault(family, [])
        for values in inputs:
            with suppress(InvalidProblemError):  # the filter is larger than its data
                own.append(_problem(chain, family, values))
    return found


def typical_extents(mod: tvm.IRModule) -> list[dict[str, int]]:
    """Return typical values of a module's symbols, small ones first, within the ranges and multiples of its inputs."""
    extents = extents_of(mod)
    batches = {
        str(symbol.name)
        for param in mod[MAIN].params
        for size in (dims_of(param.ty) or ())[:1]
        for symbol in symbols_in(size)
    }
    others = [each for each in extents if each.name not in batches]
    limits = _SIDE if len(others) > 1 else _ROW
    return [
        {
            each.name: (
                each.near(1)
                if each.name in batches and others
                else _step(each, _BATCH if each.name in batches else limits, number)
            )
            // each.multiple
            for each in extents
        }
        for number in range(COUNT)
    ]


def _step(extent: Extent, limits: tuple[int, int], number: int) -> int:
    """Return number `number` of COUNT extents in geometric progression within the limits."""
    least = min(max(limits[0], extent.low), extent.high)
    most = max(min(limits[1], extent.high), least)
    return extent.near(round(least * (most / max(least, 1)) ** (number / (COUNT - 1))))


def _problem(chain: Followed, family: ProblemFamily, values: Mapping[str, int]) -> Problem:
    dims = [_value(each, values) for each in dims_of(chain.data.ty) or ()]
    if chain.is_product:
        return family.problem(1, (product(dims[:-1]),))
    spatial = dims[1:-1] if family.data_format == "NXC" else dims[2:]
    return family.problem(dims[0], spatial, chain.problem)


def _value(extent: Any, values: Mapping[str, int]) -> int:
    if isinstance(extent, int):
        return extent
    known = {symbol: tirx.const(values.get(str(symbol.name), 1), "int64") for symbol in symbols_in(extent)}
    return int(simplify(substitute(tirx.const(0, "int64") + extent, known)))
