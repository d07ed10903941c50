"""Reproducible networks: attention is products and a softmax, other operators are annotated with FIXED, and the C library is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from relax_modules import relax_module
from tvm import relax, tirx
from tvm.relax import op

from tvmconv.algorithms.annotations import FIXED
from tvmconv.errors import SourceError
from tvmconv.family import Extent
from tvmconv.network.ir.extents import with_extents
from tvmconv.network.kernels import place
from tvmconv.network.lower import schedule_functions
from tvmconv.network.options import check_target
from tvmconv.network.passes import use_kernels


def module(dtype: str) -> relax.Function:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 2, 32, 16), dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            scores = builder.emit(op.matmul(x, op.permute_dims(x, [0, 1, 3, 2])))
            shares = builder.emit(op.nn.softmax(scores))
            answer = builder.emit_output(op.exp(builder.emit(op.matmul(shares, x))))
        builder.emit_func_output(answer)
    return builder.finalize()


def test_functions_between_kernels_are_fixed() -> None:
    lowered = schedule_functions(module("float32"), check_target("host"), "reproducible")
    functions = {v.name_hint: f for v, f in lowered.functions_items() if isinstance(f, tirx.PrimFunc)}
    assert "attention" not in functions and any("softmax" in name for name in functions)
    assert all(FIXED in each.attrs for each in functions.values())
    others = schedule_functions(module("float32"), check_target("host"))
    assert any(v.name_hint == "attention" for v, _ in others.functions_items())


def test_functions_of_the_c_library_are_refused() -> None:
    with pytest.raises(SourceError, match="math='reproducible' has no exp of its own"):
        schedule_functions(module("float64"), check_target("host"), "reproducible")


def test_small_memory_leaves_kernels_of_free_extents_reproducible(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def note(sizes: Any, target: str, math: str, progress: Any) -> dict[Any, Any]:
        asked.append(math)
        return {}

    monkeypatch.setattr(place, "build_families", note)
    filter_ = relax.const(np.ones((4, 3, 3, 3), np.float32))
    batch = tirx.Var("n", "int64")
    free = relax_module(lambda builder, x: builder.emit(op.nn.conv2d(x, filter_)), [(batch, 3, 8, 8)])
    for math in ("reproducible", "default"):
        use_kernels(with_extents(free, [Extent(name="n")]), math=math, memory="small")
    assert asked == ["reproducible", "strict"]
