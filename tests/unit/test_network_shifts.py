"""Numbers added before a convolution of a Relax module, as its bias."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from near import assert_near
from tvm import relax

from tvmconv.network.kernels.fuse_epilogue import EpilogueChain
from tvmconv.network.kernels.place import chains_of as found_chains
from tvmconv.network.passes import use_kernels
from tvmconv.network.report import report
from tvmconv.reference import compute

op, nn = relax.op, relax.op.nn
RNG = np.random.default_rng(0)
X = RNG.standard_normal((1, 5, 5, 4))
SHIFT = np.array([0.5, -1, 2, 3], np.float32)


def module_of(body: Callable[[relax.BlockBuilder, relax.Var], relax.Expr]) -> tvm.IRModule:
    """Return a module that computes what `body` emits."""
    builder = relax.BlockBuilder()
    data = relax.Var("x", relax.TensorType(X.shape, "float32"))
    with builder.function("main", [data]):
        with builder.dataflow():
            output = builder.emit_output(body(builder, data))
        builder.emit_func_output(output)
    return builder.finalize()


def chains_of(body: Callable[[relax.BlockBuilder, relax.Var], relax.Expr]) -> list[EpilogueChain]:
    """Return the chains of what `body` emits."""
    return list(found_chains("main", module_of(body)["main"])[0].values())


def conv(data: relax.Expr, weights: np.ndarray, **attributes: Any) -> relax.Expr:
    """Return a convolution, channels last."""
    return nn.conv2d(data, relax.const(weights), data_layout="NHWC", kernel_layout="OIHW", **attributes)


def filter_(*shape: int) -> np.ndarray:
    """Return a filter."""
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("shift", [SHIFT, SHIFT[:1].reshape(())])
def test_a_convolution_without_padding_takes_it(groups: int, shift: np.ndarray) -> None:
    weights = filter_(6, 4 // groups, 3, 3)
    (chain,) = chains_of(
        lambda builder, x: nn.relu(
            builder.emit(conv(builder.emit(op.add(x, relax.const(shift))), weights, groups=groups))
        )
    )
    assert chain.data.name == "x" and [step.name for step in chain.problem.epilogue] == ["relu"]
    weights = np.moveaxis(weights, (1, 0), (-2, -1))
    expected = compute(chain.problem, X + shift, weights, np.zeros(6))
    assert_near(compute(chain.problem, X, weights, chain.vectors["bias"]), expected, summed=4 * 9, dtype="float32")


def test_padding_and_other_readers_keep_the_sum() -> None:
    weights = filter_(6, 4, 3, 3)
    (padded,) = chains_of(lambda builder, x: conv(builder.emit(op.add(x, relax.const(SHIFT))), weights, padding=1))
    assert padded.data.name != "x" and not padded.problem.bias

    def read_twice(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        total = builder.emit(op.add(x, relax.const(SHIFT)))
        return op.add(builder.emit(conv(total, filter_(4, 4, 1, 1))), builder.emit(nn.silu(total)))

    (other,) = chains_of(read_twice)
    assert other.data.name != "x" and not other.problem.bias


def test_a_sum_that_repeats_data_stays() -> None:
    one, weights = relax.Var("one", relax.TensorType((1, 5, 5, 1), "float32")), filter_(6, 4, 1, 1)
    (chain,) = chains_of(lambda builder, x: conv(builder.emit(op.add(one, relax.const(SHIFT))), weights))
    assert not chain.data.same_as(one) and not chain.problem.bias


def test_what_the_convolution_before_adds_is_its_own() -> None:
    def body(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        first = builder.emit(conv(x, filter_(4, 4, 1, 1)))
        return conv(builder.emit(op.add(first, relax.const(SHIFT))), filter_(6, 4, 1, 1))

    first, second = chains_of(body)
    assert first.problem.bias and not second.problem.bias
    assert second.data.same_as(first.output)


def test_a_module_without_convolutions_has_an_empty_report() -> None:
    module = use_kernels(module_of(lambda _, x: nn.relu(x)))
    assert report(module) == []
