"""Kernels that prefetch the next filter: which lines, by which instructions, and where networks do so; answers stay the same."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

tvm = pytest.importorskip("tvm")
from relax_modules import relax_module  # noqa: E402
from tvm import relax, tirx  # noqa: E402
from tvm.ir import Call  # noqa: E402

from tvmconv.errors import ToolchainError  # noqa: E402
from tvmconv.lowering.common.rewrites import find_all  # noqa: E402
from tvmconv.lowering.cpu.rewrites.next_filter import NEXT_SYMBOL, with_next  # noqa: E402
from tvmconv.network import compile as compiling  # noqa: E402
from tvmconv.network.emit.prefetch_filters import LINE_BYTES, prefetch_next  # noqa: E402
from tvmconv.network.emit.tir_pipeline import NETWORK_PIPELINE  # noqa: E402
from tvmconv.network.kernels.build import SYMBOL_OF_CODE, build_kernels  # noqa: E402
from tvmconv.runtime.networks.network import load_network  # noqa: E402
from tvmconv.signature import parse_signature  # noqa: E402
from tvmconv.support.toolchain import find_compiler  # noqa: E402
from tvmconv.targets.target import Target  # noqa: E402

POINTWISE = "conv2d-n1-i64x7x7-o96x7x7-k1x1-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-f32"
WINDOWS = "conv2d-n1-i48x9x9-o40x9x9-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32"
DEPTHWISE = "conv2d-n1-i64x9x9-o64x9x9-k3x3-s1x1-d1x1-p1x1_1x1-g64-NXC-XIO-f32"
PREFETCH = "tirx.prefetch"


def kernel(signature: str, target: str, math: str = "strict") -> tirx.PrimFunc:
    problem = parse_signature(signature)
    return build_kernels([problem], target, None, math, None)[problem].function


def number(node: Any, known: list[tuple[Any, Any]]) -> Any:
    """Return the numbers of an index, for the numbers of its variables."""
    for variable, at in known:
        if node.same_as(variable):
            return at
    if isinstance(node, tirx.IntImm):
        return np.int64(int(node))
    kind = type(node).__name__
    if kind == "Cast":
        return number(node.value, known).astype(np.int64)
    operators = {
        "Add": np.add,
        "Mul": np.multiply,
        "FloorDiv": np.floor_divide,
        "LShift": np.left_shift,
        "RShift": np.right_shift,
    }
    operator = operators[kind]
    return operator(number(node.a, known), number(node.b, known))


def fetched(function: tirx.PrimFunc, lines: int) -> list[int]:
    """Return the lines of the last parameter but the output that a kernel prefetches, step after step."""
    given = function.params[-2]
    places = []
    for call in find_all(function.body, Call):
        if getattr(call.op, "name", "") != PREFETCH or not call.args[0].args[0].source.same_as(given):
            continue
        place = call.args[0].args[0].indices[0]
        variables = tirx.analysis.undefined_vars(place, [])
        loops = [each for each in find_all(function.body, tirx.For) if any(each.loop_var.same_as(v) for v in variables)]
        grid = np.meshgrid(*(np.arange(int(each.extent)) for each in loops), indexing="ij")
        known = [(each.loop_var, at.reshape(-1)) for each, at in zip(loops, grid, strict=True)]
        places += number(place, [*known, (given.shape[0], np.int64(lines))]).tolist()
    return places


@pytest.mark.parametrize("signature", [POINTWISE, WINDOWS, WINDOWS.replace("n1", "n2")])
@pytest.mark.parametrize("lines", [1, 100, 1000])
def test_each_line_is_prefetched_and_none_beyond(signature: str, lines: int) -> None:
    made = with_next(kernel(signature, "x86-64-v3"), lines)
    assert made is not None
    places = fetched(made, lines)
    assert min(places) == 0 and max(places) < lines
    # Each step has the part of its number: at the end a fraction may be left.
    assert len({*places}) >= min(lines, len(places)) * 0.9


@pytest.mark.parametrize(
    ("target", "instruction"),
    [("x86-64-v3", "prefetcht1"), ("x86-64-v4", "prefetcht1"), ("neoverse-n1", "prfm\tpldl2keep")],
)
def test_instructions(target: str, instruction: str) -> None:
    try:
        find_compiler(Target.parse(target).isa)
    except ToolchainError as error:
        pytest.skip(str(error))
    made = with_next(kernel(POINTWISE, target), 4000)
    assert made is not None
    module = tvm.IRModule({"f": made.with_attr("global_symbol", "f")})
    assembly = tvm.compile(module, Target.parse(target).tvm(), tir_pipeline=NETWORK_PIPELINE).mod.inspect_source("asm")
    assert len(re.findall(instruction, assembly)) >= 1
    assert "__tvm_ffi_main" not in assembly  # of another module, too, which Windows' linker does not take


def deep(builder: relax.BlockBuilder, data: Any) -> Any:
    """Return five convolutions of 64 channels, with a larger one before the last."""
    rng = np.random.default_rng(1)
    for out, taps, given in ((64, 3, 16), (256, 1, 64), (128, 3, 256), (8, 1, 128)):
        filter_ = rng.integers(-1, 2, (out, given, taps, taps)).astype(np.float32)
        data = builder.emit(relax.op.nn.conv2d(data, relax.const(filter_), padding=(taps // 2,) * 4))
        data = builder.emit(relax.op.nn.relu(data))
    return data


def test_a_network_that_no_cache_keeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = relax_module(deep, [(1, 16, 6, 5)], "float32")
    data = np.random.default_rng(0).integers(-2, 3, (1, 16, 6, 5)).astype(np.float32)
    answers, plans, names = [], [], []

    def noting(*given: Any) -> Any:
        made = prefetch_next(*given)
        plans.append(made)
        return made

    monkeypatch.setattr(compiling, "prefetch_next", noting)
    host = Target.parse("host")
    for name, caches in (("kept", (2**20, 2**30)), ("cold", (2**20, 2**18))):
        known = replace(host, caches=caches)
        monkeypatch.setattr(Target, "parse", lambda text, known=known: known)
        compiling.build(module, tmp_path / f"{name}.so", math="strict")
        network = load_network(tmp_path / f"{name}.so")
        (answer,) = network(x0=data).values()
        answers.append(answer)
        names.append(sorted((each.name, each.calls) for each in network.operators({"x0": data}, 0.0)))
    np.testing.assert_array_equal(*answers)
    assert names[0] == names[1]  # those of signatures
    kept, cold = ([step.following for step in steps] for steps, _ in plans)
    assert not any(kept)
    # Of 147 KB and 1.2 MB, of which a quarter of L3 is taken; no other filter has 100 KB.
    assert [each.size for each in cold if each is not None] == [2**18 // 4]
    assert all(each.size % LINE_BYTES == 0 for each in cold if each is not None)
    (steps, functions) = plans[1]
    assert {step.symbol for step in steps} == set(functions)
    # What was built and checked, not compiled again.
    assert [str(each.attrs[SYMBOL_OF_CODE]) for name, each in functions.items() if name.endswith("_next")] == [
        NEXT_SYMBOL
    ]


def test_a_product_whose_function_of_packed_filters_is_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its filter is data, so that what prefetches is not for it, where that is the function of packed ones (CoaT's attention)."""
    rng = np.random.default_rng(2)
    weights = rng.integers(-1, 2, (256, 152, 1, 1)).astype(np.float32)

    def make(builder: relax.BlockBuilder, one: Any, other: Any) -> Any:
        product = builder.emit(relax.op.matmul(one, other))
        again = builder.emit(relax.op.matmul(builder.emit(relax.op.nn.relu(one)), other))
        image = builder.emit(relax.op.reshape(builder.emit(relax.op.add(product, again)), (1, 152, 19, 1)))
        return builder.emit(relax.op.nn.conv2d(image, relax.const(weights)))

    module = relax_module(make, [(1, 8, 19, 200), (1, 8, 200, 19)], "float32")
    one, other = (rng.integers(-2, 3, shape).astype(np.float32) for shape in ((1, 8, 19, 200), (1, 8, 200, 19)))
    known = replace(Target.parse("host"), caches=(2**20, 2**16))
    monkeypatch.setattr(Target, "parse", lambda text: known)
    compiling.build(module, tmp_path / "cold.so", math="strict")
    network = load_network(tmp_path / "cold.so")
    assert any(each.name.startswith("conv1d-n1-i1600x19") for each in network.operators({"x0": one, "x1": other}, 0.0))
    (answer,) = network(x0=one, x1=other).values()
    product = (one @ other + np.maximum(one, 0) @ other).reshape(152, 19)
    np.testing.assert_array_equal(answer.reshape(256, 19), weights[:, :, 0, 0] @ product)
