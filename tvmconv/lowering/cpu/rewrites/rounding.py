"""Functions that round vectors of sums to bf16, for each number of lanes in use."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.ir import Call, StringImm

from ....algorithms.pairs import ROUND, rounding_text
from ...common.rewrites import IMPORT, find_all


def rounding(body: Any) -> Any:
    """Return the statement with the functions that it calls and no schedule has imported."""
    called = {str(call.args[0]).strip('"') for call in find_all(body, Call) if call.args and ROUND in str(call.args[0])}
    there = "".join(str(each.value.value) for each in find_all(body, tirx.AttrStmt) if each.attr_key == IMPORT)
    for name in sorted(called - {ROUND}):
        if f"@{name}(" not in there:
            body = tirx.AttrStmt(
                tirx.const(0, "int32"), IMPORT, StringImm(rounding_text(int(name[len(ROUND) + 1 :]))), body
            )
    return body
