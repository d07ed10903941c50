"""Tensors of a few numbers that each call computes from its extents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.ir import Expr


def number_table(
    builder: relax.BlockBuilder, numbers: Sequence[Any], dtype: str, shape: Sequence[int], factors: Sequence[float] = ()
) -> relax.Expr:
    """Return a tensor of numbers or expressions of extents, each multiplied by its factor."""
    free = [each for each in numbers if isinstance(each, Expr)]

    def table(*given: Any) -> te.Tensor:
        rest = iter(given)
        values = [next(rest).astype(dtype) if isinstance(each, Expr) else tirx.const(each, dtype) for each in numbers]
        if factors:
            values = [each * tirx.const(factor, dtype) for each, factor in zip(values, factors, strict=True)]
        if not shape:
            return te.compute((), lambda: values[0], "number")

        def body(_: Any, written: Any) -> Any:
            places = np.ndindex(*shape)
            stores = (tirx.BufferStore(written[0], each, list(at)) for each, at in zip(values, places, strict=True))
            return tirx.SeqStmt([*stores, tirx.Evaluate(0)])  # a sequence needs two statements

        return te.extern([list(shape)], [], body, dtype=dtype, name="numbers")

    # Opaque, so that TVM (0.27) does not fuse it with a function without inputs, such as a range, and define the extent twice.
    alone = {"op_pattern": 8}
    return builder.emit(builder.call_te(table, *free, primfunc_name_hint="numbers", primfunc_attrs=alone))
