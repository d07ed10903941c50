"""Data that neighbouring outputs share, read again at each tap: what one tap reads for one output, the next reads for another.

LLVM unrolls the loop over the taps of a sum of one channel, finds what they share, and keeps it in registers for the next
tap, which leaves too few for the sums: 12 sums took 7 stores and 7 loads of registers in two taps. Behind an empty
instruction, it does not know how far the data of two taps lies apart.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.ir import StringImm, TensorLoad

from ...algorithms.annotations import RELOAD
from ..common.rewrites import IMPORT, answered, asked, found, mapped, refuse, replaced, rewritten
from .padding import uses

_HIDDEN = "tvmconv_hidden"
# The same register in and out. It depends on nothing else, so that the loads of one tap share one.
_LLVM = f"""
define i32 @{_HIDDEN}(i32 %tap) alwaysinline nounwind memory(none) {{
  %same = call i32 asm "", "=r,0"(i32 %tap) nounwind memory(none)
  ret i32 %same
}}
"""


def reload_data(body: Any) -> Any:
    """Return the statement with data read again at each tap of the loops that ask for RELOAD."""
    if not any(asked(loop, RELOAD) for loop in found(body, tirx.For)):
        return body
    return tirx.AttrStmt(tirx.const(0, "int32"), IMPORT, StringImm(_LLVM), rewritten(body, RELOAD, _reloaded))


def _reloaded(loop: Any) -> Any:
    """Return a loop over taps in which what all lanes read is read at the tap that LLVM does not know."""
    tap = loop.loop_var
    lanes = [each.loop_var for each in found(loop.body, tirx.For) if each.kind == tirx.ForKind.VECTORIZED]

    def is_data(load: Any) -> bool:
        return any(uses(index, tap) for index in load.indices) and not any(uses(at, *lanes) for at in load.indices)

    if not any(map(is_data, found(loop.body, TensorLoad))):
        refuse(loop, RELOAD, "nothing that all lanes read lies elsewhere at each tap")
    hidden = tirx.call_pure_extern("int32", _HIDDEN, tap)

    def again(load: Any) -> Any:
        if not is_data(load):
            return load
        return tirx.BufferLoad(load.source, [replaced(at, {tap: hidden}) for at in load.indices])

    return answered(loop, RELOAD, mapped(loop.body, TensorLoad, again))
