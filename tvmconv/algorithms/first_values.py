"""Sums with an initial value other than 0, which tensor expressions cannot have: a call marks it and is then moved to the block's init."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.ir import Call
from tvm.s_tir import SBlock
from tvm_ffi.structural import structural_map

_FIRST = "tvmconv_first"


def begin_with(value: Any, product: Any) -> Any:
    """Return a product whose sum is to begin with `value`, which does not depend on the summed axes."""
    dtype = str(product.ty.dtype)
    return tirx.call_pure_extern(dtype, _FIRST, value, product)


def set_first_values(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a function with the values of `begin_with` as initial values of its sums."""
    return func.with_body(structural_map(func.body, [(SBlock, _set)]))


def _set(block: Any) -> Any:
    store = block.body
    added = store.value.b if isinstance(store, tirx.BufferStore) and isinstance(store.value, tirx.Add) else None
    if (
        block.init is None
        or not isinstance(added, Call)
        or len(added.args) != 3
        or str(added.args[0]).strip('"') != _FIRST
    ):
        return block
    first, product = added.args[1:]
    return SBlock(
        block.iter_vars,
        block.reads,
        block.writes,
        block.name_hint,
        tirx.BufferStore(store.buffer, store.value.a + product, store.indices),
        init=tirx.BufferStore(store.buffer, first, store.indices),
        alloc_buffers=block.alloc_buffers,
        match_buffers=block.match_buffers,
        annotations=block.annotations,
    )
