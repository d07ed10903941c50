"""The table of passes over a network's graph: its order, its page, and each pass by itself."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tvm")
import tvm
from tvm import relax
from tvm_ffi import structural_equal

from tvmconv.accuracy import NETWORK_ERROR, network_error
from tvmconv.errors import TvmconvError
from tvmconv.network import passes
from tvmconv.network.operators import legalizations
from tvmconv.network.options import Options, check_target
from tvmconv.network.passes import PASSES, Rewritten, check_pass, listing, run

op, nn = relax.op, relax.op.nn
RNG = np.random.default_rng(0)
BEFORE_KERNELS = PASSES[: check_pass("kernels")]


def test_passes_rest_on_earlier_ones() -> None:
    for place, each in enumerate(PASSES):
        assert all(check_pass(name) < place for name in each.after), each.name
    assert len({each.name for each in PASSES}) == len(PASSES)


def test_the_page_has_the_table() -> None:
    page = (Path(__file__).parents[2] / "docs/dev/networks.md").read_text()
    for each in PASSES:
        after = "; ".join(f"`{name}`: {why}" for name, why in each.after.items())
        assert f"| `{each.name}` | {each.why} | {after} |" in page
        assert f" {each.name} " in listing()


def const(*shape: int) -> relax.Expr:
    return relax.const(RNG.standard_normal(shape).astype(np.float32))


def sample() -> tvm.IRModule:
    """Return a module in which each pass before kernels finds something."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 4, 6, 6), "float32"))
    with builder.function("main", [x]):
        emit = builder.emit
        filters = emit(op.multiply(const(8, 4, 1, 1), relax.const(np.float32(0.5))))  # simplify
        numbers = relax.const(np.float32(0.03)), relax.const(np.uint8(128))
        integers = emit(op.quantize(x, *numbers, axis=0, out_dtype="uint8"))
        flipped = emit(op.flip(emit(op.dequantize(integers, *numbers, axis=0)), 1))  # move-quantizers
        nothing = relax.const(np.empty((1, 0, 6, 6), np.float32))
        first = emit(nn.conv2d(emit(op.concat([flipped, nothing], 1)), filters))  # fold-empty
        shifted = emit(op.multiply(first, const(1, 8, 1, 1)))
        second = emit(nn.conv2d(shifted, const(8, 8, 1, 1)))  # algebra, channels-last
        summed = emit(op.sum(emit(op.stack([second, first], axis=0)), axis=0))  # unstack
        rows = emit(op.permute_dims(emit(op.reshape(summed, (1, 8, 36))), (0, 2, 1)))  # sink-reshapes
        mean = emit(op.mean(rows, -1, True))
        centred = emit(op.subtract(rows, mean))
        variance = emit(op.mean(emit(op.multiply(centred, centred)), -1, True))
        deviation = emit(op.sqrt(emit(op.add(variance, relax.const(np.float32(1e-5))))))
        normal = emit(op.divide(centred, deviation))  # fuse-patterns
        back = emit(op.reshape(emit(op.permute_dims(normal, (0, 2, 1))), (1, 8, 6, 6)))
        last = emit(op.permute_dims(emit(nn.conv2d(back, const(4, 8, 3, 3), padding=(1, 1))), (0, 2, 3, 1)))
        wide = relax.const(RNG.integers(-200, 50, (144, 64)).astype(np.int16))
        sums = emit(op.matmul(emit(op.reshape(emit(op.astype(integers, "int16")), (1, 144))), wide, out_dtype="int32"))
        ends = emit(
            op.mean(emit(op.multiply(emit(op.astype(sums, "float32")), relax.const(np.float32(1e-5)))))
        )  # narrow-filters
        last = emit(op.add(emit(op.multiply(last, const(1, 1, 1, 4))), ends))  # hoist-affine
        builder.emit_func_output(last)
    return builder.finalize()


# Passes change graphs, not what LLVM makes of them.
LLVM = tvm.target.Target({"kind": "llvm", "opt-level": 0})


def value_of(mod: tvm.IRModule, data: np.ndarray) -> Any:
    machine = relax.VirtualMachine(tvm.compile(relax.transform.DecomposeOpsForInference()(mod), LLVM), tvm.cpu())
    return machine["main"](tvm.runtime.tensor(data)).numpy()


def test_each_pass_keeps_the_value_and_changes_something() -> None:
    data = RNG.standard_normal((1, 4, 6, 6)).astype(np.float32)
    state = Rewritten(sample(), Options("icelake-server"), 0)  # which multiplies bytes
    expected, idle = value_of(state.module, data), []
    for each in BEFORE_KERNELS:
        after = each.run(state)
        if structural_equal(after.module, state.module):
            idle.append(each.name)
        else:
            assert network_error(value_of(after.module, data), expected) <= NETWORK_ERROR, each.name
        state = after
    assert idle == ["compute-in", "keep-floats"]  # neither was asked for


def test_another_name_is_refused() -> None:
    with pytest.raises(TvmconvError, match=r"there is no pass 'padding' of networks; there are outline, fold-empty"):
        run(sample(), Options(), "padding")


def test_the_engine_names_no_operator() -> None:
    """An operator's own file names it, beside readers and rewrites; views of memory, which no call computes, the plan does."""
    network = Path(passes.__file__).parent
    engine = [*network.glob("*.py"), *(network / "emit").glob("*.py"), *(network / "schedule").glob("*.py")]
    named = {name for path in engine for name in re.findall(r'"(relax\.[a-z_.0-9]+)"', path.read_text())}
    found = legalizations(check_target("host"))
    assert len(found) > 50 and named & found.keys() == {"relax.reshape"}
