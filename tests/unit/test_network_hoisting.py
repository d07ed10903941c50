"""Scales and shifts by channel: moved exactly to the operators that compute the channels, or left unchanged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from near import assert_near
from relax_modules import relax_module
from tvm import relax

from tvmconv.accuracy import rounding
from tvmconv.network.ir.graph import Graph
from tvmconv.network.ir.problem_of import is_convolution, is_product
from tvmconv.network.kernels.fuse_epilogue import follow
from tvmconv.network.rewrite.batch_norm_to_affine import replace_batch_norms
from tvmconv.network.rewrite.hoist_affine import hoist
from tvmconv.targets.target import Target

op = relax.op
RNG = np.random.default_rng(0)


def number(*shape: int) -> relax.Expr:
    return relax.const(RNG.standard_normal(shape).astype(np.float32))


def normalized(emit: Any, data: Any, axis: int) -> Any:
    channels = int(data.ty.shape[axis])
    mean, variance = number(channels), relax.const(RNG.uniform(0.5, 2, channels).astype(np.float32))
    made = emit(op.nn.batch_norm(data, number(channels), number(channels), mean, variance, axis, training=False))
    return emit(relax.TupleGetItem(made, 0))


def convolution(emit: Any, data: Any, channels: int = 6) -> Any:
    return emit(op.nn.conv2d(data, number(channels, int(data.ty.shape[1]), 1, 1)))


def linear(emit: Any, data: Any, channels: int = 6) -> Any:
    return emit(op.matmul(data, number(int(data.ty.shape[-1]), channels)))


def after_a_linear(emit: Any, x: Any) -> Any:  # as LeViT has it
    rows = emit(op.reshape(linear(emit, emit(op.reshape(x, (2, 20, 4)))), (40, 6)))
    return emit(op.reshape(normalized(emit, rows, 1), (2, 20, 6)))


def after_a_concatenation(emit: Any, x: Any) -> Any:  # as MixNet has it
    parts = [emit(op.add(convolution(emit, x, channels), number(1, channels, 1, 1))) for channels in (2, 3)]
    return normalized(emit, emit(op.concat(parts, 1)), 1)


def after_a_transpose(emit: Any, x: Any) -> Any:
    rows = linear(emit, emit(op.permute_dims(x, (0, 2, 3, 1))))
    return normalized(emit, emit(op.permute_dims(rows, (0, 3, 1, 2))), 1)


def of_merged_axes(emit: Any, x: Any) -> Any:  # 3 channels of 2 neighbours each
    rows = emit(op.reshape(linear(emit, emit(op.reshape(x, (2, 20, 4)))), (2, 20, 3, 2)))
    return emit(op.multiply(rows, number(3, 1)))


def of_repeated_axes(emit: Any, x: Any) -> Any:
    rows = emit(op.reshape(linear(emit, emit(op.reshape(x, (2, 20, 4)))), (2, 20, 3, 2)))
    return emit(op.subtract(number(2), rows))


def along_rows(emit: Any, x: Any) -> Any:
    rows = emit(op.reshape(linear(emit, emit(op.reshape(x, (2, 20, 4)))), (40, 6)))
    return emit(op.multiply(rows, number(40, 1)))


def read_by_others(emit: Any, x: Any) -> Any:
    rows = linear(emit, emit(op.reshape(x, (2, 20, 4))))
    scaled = normalized(emit, emit(op.reshape(rows, (40, 6))), 1)
    return emit(op.add(emit(op.reshape(scaled, (2, 20, 6))), rows))


def of_what_is_given(emit: Any, x: Any) -> Any:
    return normalized(emit, emit(op.concat([convolution(emit, x), x], 1)), 1)


def module(make: Callable[..., Any]) -> tvm.IRModule:
    """Return a module with a function of a tensor."""
    return relax_module(lambda builder, data: make(builder.emit, data), [(2, 4, 4, 5)])


def ends(mod: tvm.IRModule) -> list[str]:
    """Return what the output of each convolution's kernel is read by."""
    graph = Graph(mod["main"])
    found = []
    for variable in graph.values:
        call = graph.call(variable)
        if call is not None and (is_convolution(call) or is_product(call)):
            for reader in graph.readers(follow(variable, graph, {}).output):
                after = graph.call(reader)
                found.append(
                    "" if reader is None else "tuple" if after is None else after.op.name.removeprefix("relax.")
                )
    return found


@pytest.mark.parametrize(
    ("make", "readers"),
    [
        (after_a_linear, [""]),
        (after_a_concatenation, ["concat", "concat"]),
        (after_a_transpose, ["permute_dims"]),
        (of_merged_axes, ["reshape"]),
        (of_repeated_axes, ["reshape"]),
    ],
)
def test_what_moves_is_part_of_the_kernel_and_the_answer_is_the_same(make: Any, readers: list[str]) -> None:
    mod = module(make)
    moved = hoist(mod)
    assert ends(moved) == readers
    data = RNG.standard_normal((2, 4, 4, 5)).astype(np.float32)
    assert_near(computed(moved, data), computed(mod, data), summed=5, layers=3)


@pytest.mark.parametrize("make", [along_rows, read_by_others, of_what_is_given])
def test_what_cannot_move_stays(make: Any) -> None:
    mod = module(make)
    assert ends(hoist(mod)) == ends(mod)


@pytest.mark.parametrize("axis", [1, 3])
def test_a_batch_normalization_is_two_operators(axis: int) -> None:
    mod = module(lambda emit, x: normalized(emit, x, axis))
    mapped = replace_batch_norms(mod)
    graph = Graph(mapped["main"])
    names = [call.op.name for each in graph.values if (call := graph.call(each)) is not None]
    assert names == ["relax.multiply", "relax.add"]
    data = RNG.standard_normal((2, 4, 4, 5)).astype(np.float32)
    data[0, 0, 0] = np.nan, np.inf, -np.inf, 0, 1e30
    # One of the numbers is 1e30, so each is compared with itself.
    np.testing.assert_allclose(
        computed(mapped, data),
        computed(mod, data),
        rtol=rounding("float32", layers=8),
        atol=rounding("float32", layers=2),
    )


def computed(mod: tvm.IRModule, data: Any) -> Any:
    executable = tvm.compile(relax.transform.DecomposeOpsForInference()(mod), Target.parse("host").tvm())
    return relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(data)).numpy()
