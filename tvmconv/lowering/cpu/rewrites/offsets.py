"""Add constants of indices last: ``a + 8 - b`` becomes ``a - b + 8``.

Addressing modes add a constant for free, but LLVM uses them only where the constant is added last: it cannot reorder a 32-bit sum that is
extended to a 64-bit address, since partial sums might overflow. Otherwise each load needs three instructions and a register for its
address, as in transposed convolutions, where the phase is subtracted.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx
from tvm.ir import TensorLoad
from tvm_ffi.structural import structural_map

from ....algorithms.annotations import CONSTANTS_LAST


def index_constants_last() -> tvm.transform.Pass:
    """Return the pass that adds constants of indices last, in functions that request it."""

    def reorder(func: tirx.PrimFunc, mod: tvm.IRModule, context: tvm.transform.PassContext) -> tirx.PrimFunc:
        if CONSTANTS_LAST not in func.attrs:
            return func
        return func.with_body(constants_last(func.body)).without_attr(CONSTANTS_LAST)

    return tirx.transform.prim_func_pass(reorder, opt_level=0, name="IndexConstantsLast")


def constants_last(body: Any) -> Any:
    """Return the statement with the constants of all indices added last."""

    def loaded(load: Any) -> Any:
        return tirx.BufferLoad(load.source, [_constant_last(index) for index in load.indices])

    def stored(store: Any) -> Any:
        return tirx.BufferStore(store.buffer, store.value, [_constant_last(index) for index in store.indices])

    return structural_map(body, [(TensorLoad, loaded), (tirx.BufferStore, stored)])


def _constant_last(index: Any) -> Any:
    """Return an index with its constant added last, if it has one and a subtraction."""
    if isinstance(index, tirx.Ramp):
        return tirx.Ramp(_constant_last(index.base), index.stride, index.lanes)
    added: list[Any] = []
    subtracted: list[Any] = []
    constant = _terms(index, 1, added, subtracted)
    if not (constant and added and subtracted):
        return index
    total = added[0]
    for term in added[1:]:
        total = tirx.Add(total, term)
    for term in subtracted:
        total = tirx.Sub(total, term)
    return tirx.Add(total, tirx.const(constant, str(index.ty)))


def _terms(index: Any, sign: int, added: list[Any], subtracted: list[Any]) -> int:
    """Append the terms of a sum, times `sign`, to the lists; return its constant."""
    if isinstance(index, tirx.IntImm):
        return sign * int(index)
    if isinstance(index, (tirx.Add, tirx.Sub)):
        right = sign if isinstance(index, tirx.Add) else -sign
        return _terms(index.a, sign, added, subtracted) + _terms(index.b, right, added, subtracted)
    (added if sign > 0 else subtracted).append(index)
    return 0
