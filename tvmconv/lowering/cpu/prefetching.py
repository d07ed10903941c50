"""Filters asked for ahead of their use, so that those which no cache keeps come from memory while others are multiplied.

A space asks for it on the loop over a sum's channels (PREFETCH): each step then prefetches what a later one reads of the
copy of the filter. The hardware's own prefetching loses its way among the streams of a tile's pixels, and stops at pages.
"""

from __future__ import annotations

from itertools import product
from typing import Any

from tvm import tirx
from tvm.ir import TensorLoad

from ...algorithms.annotations import PREFETCH
from ...algorithms.stage_names import FILTER_PACK
from .rewrites import answered, found, refuse, replaced, rewritten

# Bytes. Measured on one Zen 5 core, 4x4 outputs of 1024 to 512 channels in f32: 1.72 ms; 1.83 with 8 KiB, 9.4 without.
DISTANCE = 16 * 1024
_READ, _ALL_LEVELS, _DATA = 0, 3, 1  # as LLVM numbers them


def prefetch_filters(body: Any) -> Any:
    """Return the statement with prefetches in the loops that ask for PREFETCH."""
    return rewritten(body, PREFETCH, _prefetched)


def _prefetched(loop: Any) -> Any:
    loads, loops = found(loop.body, TensorLoad), found(loop.body, tirx.For)
    load = next((each for each in loads if each.source.name.startswith(FILTER_PACK)), None)
    if load is None:
        refuse(loop, PREFETCH, "it reads no copy of the filter")
    used = tirx.analysis.undefined_vars(load, [])
    inner = [each for each in loops if any(each.loop_var.same_as(var) for var in used)]
    # Beyond the last channel of a tap lies the next tap's first; a prefetch beyond the end of the array does nothing.
    *outer, channel, vector, lane = load.indices
    *_, vectors, lanes = (int(extent) for extent in load.source.shape)
    later = tirx.BufferLoad(load.source, [*outer, channel + DISTANCE // (4 * vectors * lanes), vector, lane])
    prefetches = []
    for values in product(*(range(1 if each.kind == tirx.ForKind.VECTORIZED else int(each.extent)) for each in inner)):
        at = replaced(later, {each.loop_var: value for each, value in zip(inner, values, strict=True)})
        prefetch = tirx.call_intrin("void", "tirx.prefetch", tirx.address_of(at), _READ, _ALL_LEVELS, _DATA)
        prefetches.append(tirx.Evaluate(prefetch))
    return answered(loop, PREFETCH, tirx.SeqStmt([*prefetches, loop.body]))
