"""Relax modules for tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm
from tvm import relax


def relax_module(
    make: Callable[..., relax.Expr], shapes: Sequence[Any], dtypes: str | Sequence[str] = "float32"
) -> tvm.IRModule:
    """Return a module whose `main` gives what `make` does with a builder and inputs `x0`, `x1` and so on."""
    dtypes = [dtypes] * len(shapes) if isinstance(dtypes, str) else dtypes
    types = [relax.TensorType(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
    given = [relax.Var(f"x{number}", each) for number, each in enumerate(types)]
    builder = relax.BlockBuilder()
    with builder.function("main", given):
        with builder.dataflow():
            output = builder.emit_output(make(builder, *given))
        builder.emit_func_output(output)
    return builder.finalize()
