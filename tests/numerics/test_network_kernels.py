"""Kernels of a network: how large their filters may be, and that the code linked is what packs them."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

tvm = pytest.importorskip("tvm")
from relax_modules import relax_module  # noqa: E402
from tvm import relax  # noqa: E402

from tvmconv.algorithms import table  # noqa: E402
from tvmconv.building.decision.rank import Room  # noqa: E402
from tvmconv.network.compile import build  # noqa: E402
from tvmconv.network.kernels.build import build_kernels  # noqa: E402
from tvmconv.network.kernels.weight_budget import MOST_TIMES  # noqa: E402
from tvmconv.network.passes import use_kernels  # noqa: E402
from tvmconv.network.report import report  # noqa: E402
from tvmconv.problem import Problem  # noqa: E402
from tvmconv.runtime.networks.network import load_network  # noqa: E402
from tvmconv.signature import parse_signature  # noqa: E402
from tvmconv.support import toolchain  # noqa: E402
from tvmconv.tuning.records import Records  # noqa: E402

RNG = np.random.default_rng(0)
LAYER = parse_signature("conv2d-n1-i64x14x14-o64x14x14-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32")


def filters(*shape: int) -> relax.Constant:
    """Return whole numbers, of which sums are exact."""
    return relax.const(RNG.integers(-2, 3, shape).astype(np.float32))


def convolved(builder: relax.BlockBuilder, data: Any, filter_: relax.Expr) -> Any:
    """Return a convolution of 3x3 taps that keeps the shape."""
    return builder.emit(relax.op.nn.conv2d(data, filter_, padding=(1, 1)))


def deep(builder: relax.BlockBuilder, data: Any) -> Any:
    """Return a convolution whose transformed filter no cache keeps: calls by Winograd would transform the plain one."""
    return convolved(builder, data, filters(512, 512, 3, 3))


def test_small_memory_has_no_transforms_whatever_their_filters_take() -> None:
    module = relax_module(deep, [(1, 512, 14, 14)])

    def numerical_class(memory: str) -> str:
        (row,) = report(use_kernels(module, "x86-64-v3", records=Records(shipped=False), memory=memory))
        return table.get(row.algorithm).numerical_class

    assert [numerical_class(memory) for memory in ("default", "small")] == ["transform", "exact"]


def test_the_room_of_filters_counts_those_that_layers_share_once(monkeypatch: pytest.MonkeyPatch) -> None:
    shared, own = filters(16, 16, 3, 3), filters(16, 16, 3, 3)
    offset = RNG.standard_normal((1, 16, 9, 7)).astype(np.float32)

    def layers(builder: relax.BlockBuilder, data: Any) -> Any:
        for filter_ in (shared, shared, shared, own):
            data = builder.emit(relax.op.sin(convolved(builder, data, filter_)))
        return builder.emit(relax.op.multiply(data, relax.const(offset)))

    asked: list[tuple[list[Problem], Room]] = []

    def note(problems: Sequence[Problem], *, prepacked: bool = True, **others: Any) -> dict[Problem, Any]:
        if prepacked:  # not the kernels of products of data, of which there are none
            asked.append((list(problems), others["room"]))
        return {}

    monkeypatch.setattr("tvmconv.network.kernels.place.build_kernels", note)
    use_kernels(relax_module(layers, [(1, 16, 9, 7)]))
    ((problems, room),) = asked
    size = 4 * 16 * 16 * 9
    assert len(problems) == 4 and room.filters == {problems[0]: 2}
    assert room.most_bytes == MOST_TIMES * (2 * size + offset.nbytes) - offset.nbytes


def test_nothing_is_lowered_a_second_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers lower kernels; this process takes their functions."""

    def refuse(*_: Any) -> Any:
        raise AssertionError("a kernel was lowered here, too")

    monkeypatch.setattr("tvmconv.lowering.cpu.kernels.lower_choice", refuse)
    monkeypatch.setattr("tvmconv.lowering.cpu.lowering.lower", refuse)
    (kernel,) = build_kernels([LAYER], "host", Records(shipped=False), "default", None).values()
    assert kernel.problem == LAYER


def test_without_objcopy_kernels_are_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = filters(16, 16, 3, 3), filters(16, 16, 3, 3)
    module = relax_module(
        lambda builder, data: convolved(builder, convolved(builder, data, first), second), [(1, 16, 9, 7)]
    )
    build(module, tmp_path / "linked.so", math="strict")
    which = shutil.which
    monkeypatch.setattr(toolchain.shutil, "which", lambda name: None if name.endswith("objcopy") else which(name))
    assert not toolchain.has_tool("objcopy")
    build(module, tmp_path / "again.so", math="strict")
    data = RNG.integers(-2, 3, (1, 16, 9, 7)).astype(np.float32)
    linked, again = (load_network(tmp_path / f"{name}.so")(x0=data) for name in ("linked", "again"))
    assert [*linked] == [*again]
    for name, answer in linked.items():
        np.testing.assert_array_equal(again[name], answer)
