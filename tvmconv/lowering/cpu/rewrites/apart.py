"""Prevent LLVM from reordering the steps of a sum.

LLVM schedules the unrolled steps of a sum as one basic block, and moves loads of the next step before products of this one, where a tile of
28 sums leaves four registers. A sum without a register is spilled and reloaded in each step, and the load waits for the store. An empty
instruction that may write memory, between steps, keeps later loads behind it.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.ir import StringImm

from ....algorithms.annotations import APART
from ...common.rewrites import IMPORT, asks_for, find_all, rewrite_loops, settle

_ORDER = "tvmconv_in_order"
_LLVM = f"""
define i32 @{_ORDER}() alwaysinline nounwind {{
  call void asm sideeffect "", "~{{memory}}"() nounwind
  ret i32 0
}}
"""


def keep_apart(body: Any) -> Any:
    """Return the statement with steps of loops that request APART kept in order."""
    if not any(asks_for(loop, APART) for loop in find_all(body, tirx.For)):
        return body
    return tirx.AttrStmt(tirx.const(0, "int32"), IMPORT, StringImm(_LLVM), rewrite_loops(body, APART, _keep_order))


def _keep_order(loop: Any) -> Any:
    after = tirx.Evaluate(tirx.call_extern("int32", _ORDER))
    return settle(loop, APART, tirx.SeqStmt([loop.body, after]))
