"""Former failures of the campaign, and the campaign's detection of wrong kernels."""

from __future__ import annotations

import ctypes
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count, groupby
from math import gcd
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from campaign import check, regressions, run
from campaign.build import Kernel
from campaign.campaign import Campaign, Settings
from campaign.check import Batch, Case, Outcome
from campaign.draw import (
    KINDS,
    LAYER_BYTES,
    LAYER_FLOPS,
    kind_of,
    networks,
    problem,
    real_layer,
    small_problem,
)
from campaign.layers import LAYERS, parse
from campaign.shrink import reductions, shrink
from kernels import isa

from tvmconv import reference
from tvmconv.dtypes import QUANTIZED
from tvmconv.errors import TvmconvError
from tvmconv.isa.machine import missing_features
from tvmconv.lowering.compiler import Choice
from tvmconv.problem import Problem
from tvmconv.signature import format_signature, parse_signature
from tvmconv.support.sandbox import Sandbox
from tvmconv.targets.target import CpuTarget, Target

SMALL = parse_signature("conv1d-n2-i5x9-o6x9-k3-s1-d1-p1_1-g1-NXC-XIO-f32-bias")
HOST = Target.parse("host")
assert isinstance(HOST, CpuTarget)
of_target = attrgetter("target")

# What LLVM takes this CPU for, which may lack features that it has: those with AVX2 alone and with bf16's dot products too.
TARGETS = tuple(
    target for target in map(Target.parse, ("host", "x86-64-v3", "znver4")) if not missing_features(target.features)
)
FAILED = {name: list(each) for name, each in groupby(sorted(regressions.read(), key=of_target), key=of_target)}


@pytest.mark.parametrize("target", [pytest.param(name, marks=isa(name)) for name in FAILED])
def test_what_once_failed_is_right(target: str, try_kernels: Callable[..., None]) -> None:
    cpu = Target.parse(target)
    found = [(parse_signature(each.signature), each.choice) for each in FAILED[target]]
    try_kernels([Case(problem, cpu, 0, ((choice, False), (choice, True))) for problem, choice in found])


@pytest.fixture
def one_sandbox(sandbox: Sandbox[Batch, list[Outcome]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let campaigns use the process that is there: another one takes as long to start as ten problems to try."""
    shared = SimpleNamespace(call=sandbox.call, close=lambda: None)
    monkeypatch.setattr("campaign.campaign.Sandbox", lambda *_, **__: shared)


@pytest.mark.usefixtures("one_sandbox")
@pytest.mark.parametrize(("seed", "problems"), [(1, 32), pytest.param(2, 8, marks=pytest.mark.smoke)])
def test_a_campaign_fails_nowhere(seed: int, problems: int) -> None:
    """The same problems in every run; `.ci/run` tries others each time."""
    campaign = Campaign(Settings(seed, None, problems, TARGETS, KINDS, 1, None))
    campaign.run()
    assert sum(campaign.problems.values()) == problems and sum(campaign.kernels.values()) > 1.5 * problems
    assert not campaign.families, campaign.text()


def test_right_kernels_are_right(sandbox: Sandbox[Batch, list[Outcome]]) -> None:
    for quick in (False, True):
        cases = (Case(SMALL, HOST, 1), Case(SMALL.with_(in_channels=0), HOST, 2))
        outcomes = sandbox.call(Batch(cases, quick), 600)
        assert {outcome.number for outcome in outcomes} == {0, 1}
        assert {outcome.kind for outcome in outcomes} == {"right"}


def spoil(fault: str, calls: Iterator[int], *given: npt.NDArray[Any]) -> None:
    """Compute SMALL, with a fault."""
    output = given[-1]
    output[...] = reference.compute(SMALL, *given[:-1])
    if fault == "wrong":
        output[-1, -1, -1] += 1
    elif fault == "not written":
        output[0, 0, 0] = np.nan
    elif fault == "input written":
        given[1][...] = 0
    elif fault == "past the end":
        ctypes.memset(output.ctypes.data + output.nbytes, 0, 8)
    elif fault == "before the beginning":
        ctypes.memset(output.ctypes.data - 8, 0, 8)
    elif fault == "never ends":
        time.sleep(1000)
    elif fault == "changing":
        output += next(calls) * 1e-6 * (output != np.round(output))  # on normal data alone
    elif fault == "raised":
        raise RuntimeError("a kernel's error")


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("none", "right"),
        ("wrong", "wrong"),
        ("not written", "wrong"),
        ("input written", "crash"),
        ("past the end", "crash"),
        ("before the beginning", "crash"),
        ("never ends", "hang"),
        ("changing", "bits"),
        ("raised", "raised"),
    ],
)
def test_what_a_kernel_does_wrong_is_found(fault: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = count()

    def load_module(path: str) -> dict[str, Any]:
        return {"tvmconv_kernel_0": partial(spoil, fault, calls), "tvmconv_set_threads": lambda threads: None}

    monkeypatch.setattr(run, "tvm_ffi", SimpleNamespace(load_module=load_module, from_dlpack=lambda array: array))
    # A child of a process that has used PyTorch's threads may not.
    monkeypatch.setattr(run, "find_spec", lambda name: None)
    if kind == "hang":
        monkeypatch.setattr(check, "LEAST_SECONDS", 1.0)
    batch, plan = Batch((Case(SMALL, HOST, 1),)), Outcome(0, Choice("direct"), "right")
    kernels = [(plan, Kernel("", "_0", True, None))] * 2
    assert [outcome.kind for outcome in check.run_all(batch, kernels)] == [kind] * 2


def test_what_does_not_compile_leaves_the_others(sandbox: Sandbox[Batch, list[Outcome]]) -> None:
    wrong = Case(SMALL, HOST, 1, ((Choice("direct", 99), False), (Choice("direct"), False)))
    outcomes = sandbox.call(Batch((wrong, Case(SMALL, HOST, 1))), 600)
    assert Counter((o.number, o.kind) for o in outcomes)[0, "compile"] == 1
    assert {o.kind for o in outcomes if o.choice != Choice("direct", 99)} == {"right"}


def test_problems_are_drawn_over_the_whole_contract() -> None:
    draw = random.Random(0)
    drawn = [small_problem(draw, KINDS) for _ in range(3000)]
    seen = {(p.op, p.rank, kind_of(p), p.data_format, p.filter_format, p.bias) for p in drawn}
    assert len(seen) == 2 * 3 * len(KINDS) * 2 * 2 * 2
    assert {p.dtype for p in drawn if p.is_quantized} == set(QUANTIZED)
    assert {p.batch for p in drawn} >= set(range(10))
    assert {s for p in drawn for s in p.strides} >= set(range(1, 9))
    assert {d for p in drawn for d in p.dilations} >= set(range(1, 19))
    assert {k for p in drawn for k in p.kernel} >= set(range(1, 17))
    assert any(p.is_constant for p in drawn) and any(p.is_empty for p in drawn)
    # What the failures had that the draws before had not: three vectors of channels a tile, factors that strides and
    # dilations share beside padding that is not a multiple of them, extents of 1, outputs that see padding alone.
    assert sum(p.out_channels % 96 == 0 < p.out_channels for p in drawn) > 30
    shared = (
        b > s and b % gcd(s, d) and k > 1 and p.op == "convolution"
        for p in drawn
        for b, s, d, k in zip(p.pads_begin, p.strides, p.dilations, p.kernel, strict=True)
    )
    assert sum(map(bool, shared)) > 30
    assert sum(max(p.in_spatial) == 1 for p in drawn) > 100
    assert sum(max(p.pads_begin) > max(p.kernel) for p in drawn) > 100


def test_layers_are_drawn_and_fit() -> None:
    draw = random.Random(0)
    drawn = [problem(draw, ("f32",)) for _ in range(300)]
    assert sum(p.flops > 10_000_000 for p in drawn) > 30
    assert max(p.flops for p in drawn) <= LAYER_FLOPS
    fields = {"dtype": "f32", "data_format": "NXC", "filter_format": "XIO", "bias": False}
    made = [each for _ in range(300) if (each := real_layer(draw, fields))]
    assert max(p.flops for p in made) <= LAYER_FLOPS and max(p.nbytes for p in made) <= LAYER_BYTES
    assert len(networks()) >= len(LAYERS) + 10 and all(networks())


def test_layers_are_read() -> None:
    assert parse("28x28 1024>512 2x2 2 up").transposed
    layer = parse("56x56 144>144 5x5 2 gdw d3")
    assert (layer.extents, layer.kernel, layer.groups, layer.dilation, layer.stride) == ((56, 56), (5, 5), 144, 3, 2)
    assert not parse("299x299 3>32 3x3 2 valid").padded


def test_a_failure_shrinks_to_the_smallest_problem() -> None:
    """Of a kernel that is wrong where dilations are above 1 and there are two outputs or more."""

    def failing(tries: Sequence[tuple[Problem, Sequence[Choice]]]) -> tuple[Problem, Choice] | None:
        bad = (each for each in tries if max(each[0].dilations) > 1 and max(each[0].out_spatial) > 1)
        return next(((p, choices[0]) for p, choices in bad), None)

    large = parse_signature("conv3d-n3-i8x9x9x9-o16x5x9x5-k3x3x3-s2x1x2-d1x3x1-p1x3x1_1x3x1-g2-NCX-OIX-bf16-bias")
    smallest, choice = shrink(large, Choice("direct", 2, (1, 0)), failing, 60)
    assert format_signature(smallest) == "conv1d-n1-i1x4-o1x2-k2-s1-d2-p0_0-g1-NXC-XIO-f32"
    assert choice == Choice("direct")
    assert all(reduced != smallest for reduced in reductions(smallest))


def test_a_failure_of_integers_shrinks_to_plain_ones() -> None:
    def failing(tries: Sequence[tuple[Problem, Sequence[Choice]]]) -> tuple[Problem, Choice] | None:
        return next(((p, choices[0]) for p, choices in tries if p.is_quantized and p.in_channels > 2), None)

    large = parse_signature(
        "conv2d-n2-i8x9x9-o6x5x5-k3x3-s2x2-d1x1-p1x1_1x1-g2-NCX-OIX-s8u8u8-zx-7-zw9-bias_f32-scale-relu-q_0.1_3"
    )
    smallest, _ = shrink(large, Choice("direct"), failing, 60)
    assert format_signature(smallest) == "conv1d-n1-i3x1-o1x1-k1-s1-d1-p0_0-g1-NXC-XIO-u8s8s32"


def test_regressions_are_written_and_read(tmp_path: Path) -> None:
    path = tmp_path / "found.toml"
    found = [
        regressions.Regression(format_signature(SMALL), "x86-64-v3", Choice("direct", 1, (2, 0)), 'wrong: "x"'),
        regressions.Regression(format_signature(SMALL), "x86-64-v3", Choice("direct"), "compile: y"),
    ]
    for each in [*found, *found]:
        regressions.append(each, path)
    assert regressions.read(path) == found
    assert [each.name for each in tmp_path.iterdir()] == ["found.toml"]


def test_a_campaign_counts_and_reports_failures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a compiler that fails for every problem with groups."""

    class Fake:
        def __init__(self, *_: object, **__: object) -> None:
            self.close = lambda: None

        def call(self, batch: Batch, seconds: float) -> list[Outcome]:
            return [
                Outcome(number, choice, "compile" if case.problem.groups > 1 else "right", "E: no 12", sketches=2)
                for number, case in enumerate(batch.cases)
                for choice in [case.choices[0][0] if case.choices else Choice("direct")]
            ]

    monkeypatch.setattr("campaign.campaign.Sandbox", Fake)
    campaign = Campaign(Settings(7, None, 50, (HOST,), ("f16",), 2, tmp_path / "found.toml"))
    campaign.run()
    summary = campaign.summary()
    assert summary["seed"] == 7 and summary["problems"] == {f"{HOST.name} f16": 50}
    (failure,) = summary["failures"]
    assert failure["detail"] == "E: no 12" and 0 < failure["count"] < 50
    (written,) = regressions.read(tmp_path / "found.toml")
    assert written.signature == failure["smallest"] and parse_signature(written.signature).groups == 2
    assert summary["sketches"] == {"direct 0": 50, "direct 1": 0}
    assert "sketches that were not drawn: direct 1" in campaign.text()


@pytest.mark.usefixtures("one_sandbox")
def test_a_campaign_of_one_algorithm_tries_it_alone() -> None:
    campaign = Campaign(Settings(5, None, 3, (HOST,), ("f32",), 1, None, "reduced"))
    campaign.run()
    assert {algorithm for _, algorithm, _, _ in campaign.kernels} == {"reduced"}
    assert sum(campaign.problems.values()) == 3 and not campaign.families, campaign.text()


def test_an_algorithm_that_covers_nothing_that_is_drawn_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("campaign.campaign.DRAWS", 10)
    with pytest.raises(TvmconvError, match=r"dot covers none of 10 problems .*: tvmconv explain .* --algorithms"):
        Campaign(Settings(5, None, 8, (HOST,), ("f32",), 1, None, "dot")).run()


def test_a_campaign_that_cannot_go_on_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr("campaign.campaign.Sandbox", broken)
    with pytest.raises(OSError, match="no more processes"):
        Campaign(Settings(7, 60.0, None, (HOST,), ("f16",), 2, None)).run()
