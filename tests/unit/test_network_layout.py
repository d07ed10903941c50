"""Sums of a convolution's data and other data take the layout of what reads them."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("tvm")
from tvm import relax

from tvmconv.network.ir.constants import static_shape
from tvmconv.network.rewrite.channels_last import channels_last

op = relax.op


@pytest.mark.parametrize("convolved_first", [True, False])
@pytest.mark.parametrize("on_its_way", [True, False])
@pytest.mark.parametrize("name", ["add", "multiply", "maximum", "minimum"])
def test_a_sum_on_its_way_to_a_convolution_is_channels_last(name: str, on_its_way: bool, convolved_first: bool) -> None:
    builder = relax.BlockBuilder()
    image = relax.Var("image", relax.TensorType((1, 16, 8, 8), "float32"))
    tokens = relax.Var("tokens", relax.TensorType((1, 16, 64), "float32"))
    weight = relax.const(np.ones((16, 16, 1, 1), np.float32))
    with builder.function("main", [image, tokens]):
        with builder.dataflow():
            parts = [
                builder.emit(op.nn.relu(builder.emit(op.nn.conv2d(image, weight)))),
                builder.emit(op.reshape(tokens, (1, 16, 8, 8))),
            ]
            total = builder.emit(getattr(op, name)(*parts if convolved_first else reversed(parts)))
            read = builder.emit(op.nn.max_pool2d(builder.emit(op.sigmoid(total)), (2, 2)))
            last = builder.emit(op.nn.conv2d(read, weight) if on_its_way else op.reshape(read, (1, 16, 49)))
            answer = builder.emit_output(last)
        builder.emit_func_output(answer)

    found: list[relax.Call] = []
    relax.analysis.post_order_visit(
        channels_last(builder.finalize())["main"],
        lambda each: found.append(each) if getattr(getattr(each, "op", None), "name", "") == f"relax.{name}" else None,
    )
    is_last = static_shape(found[0].ty) == (1, 8, 8, 16)
    assert is_last == (on_its_way or convolved_first)
