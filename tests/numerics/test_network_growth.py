"""Long chains of operators between kernels: what is compiled grows with the nodes, not with how often each value is read."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from near import assert_near

pytest.importorskip("tvm")
from tvm import relax, tirx
from tvm.ir import Expr

from tests.relax_modules import relax_module
from tvmconv.lowering.common.rewrites import find_all
from tvmconv.network.compile import build
from tvmconv.network.lower import schedule_functions
from tvmconv.network.operators.bound_fusion import MOST
from tvmconv.network.options import check_target
from tvmconv.network.passes import use_kernels
from tvmconv.runtime.networks.network import load_network

op = relax.op
SHAPE = (1, 2, 4, 16)
Emit = Callable[[Any], Any]


def number(value: float) -> Any:
    return relax.const(np.float32(value), "float32")


def enhanced(emit: Emit, x: Any, r: Any, step: int) -> Any:
    """Return ``x + r * (x * x - x)``, as Zero-DCE has it eight times."""
    return emit(op.add(x, emit(op.multiply(r, emit(op.subtract(emit(op.multiply(x, x)), x))))))


def numbers(emit: Emit, x: Any, r: Any, step: int) -> Any:
    return emit(op.add(emit(op.multiply(x, number(1 + step / 512))), number(step)))


def added(emit: Emit, x: Any, r: Any, step: int) -> Any:
    return emit(op.add(x, emit(op.multiply(r, number(step)))))


def chosen(emit: Emit, x: Any, r: Any, step: int) -> Any:
    return emit(op.nn.relu(emit(op.subtract(x, r))))


def turned(emit: Emit, x: Any, r: Any, step: int) -> Any:
    return emit(op.reshape(emit(op.permute_dims(emit(op.sigmoid(x)), [0, 1, 3, 2])), SHAPE))


def cut(emit: Emit, x: Any, r: Any, step: int) -> Any:
    parts = [emit(op.strided_slice(x, [3], [begin], [begin + 8])) for begin in (8, 0)]
    return emit(op.concat(parts, 3))


def chain(step: Any, count: int) -> Any:
    """Return a module of a step as often as told."""

    def make(builder: Any, x: Any, r: Any) -> Any:
        for at in range(count):
            x = step(builder.emit, x, r, at)
        return x

    return relax_module(make, [SHAPE, SHAPE])


def measured(step: Any, count: int, whole: bool = True) -> tuple[int, int, int]:
    """Return the calls of our functions while a chain is lowered, the expressions of its functions, and the statements of `main`.

    If it is not to be the `whole` way, neither calls are counted, which takes long, nor are there passes before.
    """
    calls = 0

    def note(frame: Any, event: str, _: Any) -> None:
        nonlocal calls
        calls += event == "call" and "tvmconv" in frame.f_code.co_filename

    module = chain(step, count)
    sys.setprofile(note if whole else None)
    try:
        rewritten = use_kernels(module, layout="NCX") if whole else module
        lowered = schedule_functions(rewritten, check_target("host"))
    finally:
        sys.setprofile(None)
    functions = {name: each for name, each in lowered.functions_items() if isinstance(each, tirx.PrimFunc)}
    bindings = [each.value for block in lowered["main"].body.blocks for each in block.bindings]
    called = [each for each in bindings if isinstance(each, relax.Call) and each.op.name == "relax.call_tir"]
    sizes = {name: len(find_all(each.body, Expr)) for name, each in functions.items()}
    assert max(sizes.values()) <= 4 * MOST
    return calls, sum(sizes[each.args[0]] for each in called), len(bindings)


@pytest.mark.parametrize("step", [numbers, added, chosen, turned, cut])
def test_work_grows_with_the_nodes(step: Any) -> None:
    few, many = measured(step, 20), measured(step, 80)
    assert all(more <= 4.4 * less + 50 for less, more in zip(few, many, strict=True)), (few, many)


def test_thousands_of_nodes() -> None:
    """Of 750, 1,500 and 3,000 nodes, as many expressions and statements for each."""
    first, *others = (measured(enhanced, nodes // 4, whole=False) for nodes in (750, 1500, 3000))
    for by, each in zip((2, 4), others, strict=True):
        assert all(more <= 1.1 * by * less for less, more in zip(first, each, strict=True)), (first, each)


def test_enhanced_eight_times(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, r = rng.random(SHAPE).astype(np.float32), rng.uniform(-1, 1, SHAPE).astype(np.float32)
    build(chain(enhanced, 8), tmp_path / "network.so")
    (answer,) = load_network(tmp_path / "network.so")(x0=x, x1=r).values()
    right = x.astype(np.float64)
    for _ in range(8):
        right = right + r * (right * right - right)
    assert_near(answer, right, layers=2)  # less than 8 times three roundings
