"""Winograd convolutions: right at every edge, the error within its limit, and left out by strict math."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from campaign.check import Case
from kernels import compile_and_call, host_without_tiles, isa
from near import assert_near

from tvmconv import cli, fills, reference
from tvmconv.accuracy import relative_error
from tvmconv.algorithms import table as algorithms
from tvmconv.algorithms.cpu.transforms.winograd_transforms import data_transform, filter_transform, output_transform
from tvmconv.building.builder import build
from tvmconv.dtypes import ROWS
from tvmconv.errors import TvmconvError
from tvmconv.lowering.compiler import Choice, samples
from tvmconv.problem import Problem
from tvmconv.runtime.bundle import read_bundle
from tvmconv.runtime.verify import verify
from tvmconv.signature import format_signature, parse_signature
from tvmconv.targets.target import Target
from tvmconv.tuning import tuner
from tvmconv.tuning.records import Record, Records
from tvmconv.tuning.replay import spaces_of

HOST = Target.parse("host")
NAMES = ("winograd4", "winograd2")
SMALL = "conv2d-n1-i32x14x14-o32x14x14-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32-bias"
EDGES = [
    SMALL,
    # Odd sizes, pads on one side, channels that fill no vector, a batch.
    "conv2d-n2-i20x13x9-o24x12x10-k3x3-s1x1-d1x1-p1x0_0x3-g1-NXC-XIO-f32-bias",
    # No pads, whole tiles: data is read in place.
    "conv2d-n1-i16x10x14-o16x8x12-k3x3-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-f32",
    # Many tiles in a row, whose number is prime; odd channels.
    "conv2d-n1-i3x5x124-o40x5x124-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32",
    # One output; wider pads than taps.
    "conv2d-n3-i64x3x3-o128x1x1-k3x3-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-f32-bias",
    "conv2d-n1-i8x4x4-o8x12x11-k3x3-s1x1-d1x1-p5x4_5x5-g1-NXC-XIO-f32",
    # A volume that is a batch of images.
    "conv3d-n2-i8x3x8x8-o16x3x8x8-k1x3x3-s1x1x1-d1x1x1-p0x1x1_0x1x1-g1-NXC-XIO-f32",
    # Channels first, filters as models have them, output channels that fill no vector.
    "conv2d-n2-i20x7x9-o21x7x9-k3x3-s1x1-d1x1-p1x1_1x1-g1-NCX-OIX-f32-bias",
    # Dilations that interleave more tiles than there are outputs.
    "conv2d-n1-i8x14x14-o16x14x14-k3x3-s1x1-d3x20-p3x20_3x20-g1-NXC-XIO-f32",
    # Groups; a transposed filter.
    "conv2d-n1-i16x8x8-o32x8x8-k3x3-s1x1-d1x1-p1x1_1x1-g2-NCX-XIO-f32-bias",
    # Depth taps and strides are summed directly.
    "conv3d-n1-i8x6x9x9-o16x3x9x9-k3x3x3-s2x1x1-d1x1x1-p1x1x1_0x1x1-g1-NXC-OIX-f32-bias",
    # One axis; two taps.
    "conv1d-n1-i16x50-o24x50-k2-s1-d4-p4_0-g1-NXC-XIO-f32-bias",
    "conv2d-n1-i16x14x14-o16x15x14-k2x1-s1x1-d1x1-p1x0_1x0-g1-NXC-XIO-f32",
    # Transposed: one window of several phases, four windows of one or two taps an axis, dilated phases.
    "backprop2d-n1-i16x7x7-o16x14x14-k4x4-s2x2-d1x1-p1x1_1x1-g1-NXC-XIO-f32-bias",
    "backprop2d-n1-i16x7x7-o16x14x14-k3x3-s2x2-d1x1-p1x1_0x0-g1-NCX-OIX-f32",
    "backprop2d-n1-i16x5x5-o8x24x24-k4x4-s3x3-d5x5-p2x2_2x2-g1-NXC-XIO-f32",
    # Narrower types.
    "conv2d-n1-i16x9x9-o24x9x9-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f16-bias",
    "backprop2d-n1-i16x9x9-o24x9x9-k3x3-s1x1-d1x1-p1x1_1x1-g1-NCX-OIX-bf16-bias",
    # Taps in pieces, the last with fewer: of one axis, dilated, of both, beside taps that are summed directly, of phases.
    "conv1d-n2-i16x70-o24x70-k7-s1-d3-p9_9-g1-NXC-XIO-f32-bias",
    "conv1d-n1-i8x50-o20x44-k11-s1-d1-p0_4-g1-NCX-OIX-f32",
    "conv2d-n1-i16x12x15-o32x12x13-k7x6-s1x1-d1x2-p3x4_3x4-g2-NCX-OIX-f32-bias",
    "conv2d-n1-i12x20x9-o16x20x9-k9x1-s1x1-d1x1-p4x0_4x0-g1-NXC-XIO-bf16",
    "conv3d-n1-i8x6x10x12-o16x3x10x11-k3x7x6-s2x1x1-d1x1x1-p1x3x2_0x3x2-g1-NXC-XIO-f32",
    "backprop1d-n1-i16x30-o24x60-k16-s2-d1-p7_7-g1-NXC-XIO-f32-bias",
    "backprop2d-n1-i8x9x8-o16x12x14-k4x7-s1x1-d1x1-p0x0_0x0-g1-NXC-OIX-f32",
]
# The most that rounding the output alone can make of it.
ROUNDING = {"f16": 2.0**-11, "bf16": 2.0**-8}


def drawn(name: str, problem: Problem, number: int) -> Choice:
    """Return random decisions of a sketch, counted round."""
    algorithm, draw = algorithms.get(name), random.Random(f"{problem}{name}")
    sketches = algorithm.sketches(algorithm.define(problem, HOST), HOST)
    number %= len(sketches)
    return Choice(name, number, tuple(draw.randrange(len(sample.attrs[0])) for sample in samples(sketches[number])))


@pytest.mark.parametrize("number", [pytest.param(0, marks=pytest.mark.smoke), *range(1, len(EDGES))])
def test_both_structures_are_right(number: int, try_kernels: Callable[..., None]) -> None:
    """Each problem by two sketches with random decisions: three from some number on are of one structure, others of another."""
    problem, prepacked = parse_signature(EDGES[number]), number % 3 == 0
    choices = [drawn(NAMES[0], problem, number), drawn(NAMES[1], problem, number + 3)]
    try_kernels([Case(problem, HOST, number, tuple((choice, prepacked) for choice in choices))])


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("signature", EDGES)
def test_every_sketch_is_right(signature: str, name: str, try_kernels: Callable[..., None]) -> None:
    problem, algorithm = parse_signature(signature), algorithms.get(name)
    count = len(algorithm.sketches(algorithm.define(problem, HOST), HOST))
    try_kernels([Case(problem, HOST, 0, tuple((Choice(name, number), False) for number in range(count)))], quick=False)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_sums_are_rounded_once(dtype: str, tmp_path: Path) -> None:
    problem = parse_signature(SMALL.replace("f32", dtype))
    arrays = fills.random_fill(problem)
    expected = reference.compute(problem, *arrays)
    error = relative_error(compile_and_call(problem, HOST, tmp_path, arrays, Choice("winograd4")), expected)
    assert 0 < error < ROUNDING[dtype]


@pytest.mark.parametrize("taps", [2, 5, 7, 11])
def test_error_of_other_taps_is_within_the_limit(taps: int, tmp_path: Path) -> None:
    kernel, end = f"k{taps}x{taps}", taps // 2
    problem = parse_signature(
        f"conv2d-n1-i512x8x8-o32x{9 - taps % 2}x{9 - taps % 2}-{kernel}-s1x1-d1x1-p{end}x{end}_{end}x{end}-g1-NXC-XIO-f32"
    )
    arrays = fills.random_fill(problem)
    expected = reference.compute(problem, *arrays)
    error = relative_error(compile_and_call(problem, HOST, tmp_path, arrays, Choice("winograd4")), expected)
    assert 0 < error < ROWS["f32"].transform_error / 3


@pytest.mark.parametrize("target", [pytest.param(name, marks=isa(name)) for name in ("x86-64-v3", "x86-64-v4")])
def test_other_targets_are_right(target: str, try_kernels: Callable[..., None]) -> None:
    cpu, choices = Target.parse(target), tuple((Choice(name), False) for name in NAMES)
    try_kernels([Case(parse_signature(signature), cpu, 0, choices) for signature in EDGES[:2]], quick=False)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("channels", [64, 2048])
def test_error_is_within_the_limit(channels: int, name: str, tmp_path: Path) -> None:
    problem = parse_signature(f"conv2d-n1-i{channels}x8x8-o32x8x8-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32")
    arrays = fills.random_fill(problem)
    expected = reference.compute(problem, *arrays)
    error = relative_error(compile_and_call(problem, HOST, tmp_path, arrays, Choice(name)), expected)
    # A third of the limit leaves room for other data.
    assert 0 < error < ROWS["f32"].transform_error / 3


@pytest.mark.parametrize(("points", "taps"), [(4, 2), (4, 3), (6, 2), (6, 3), (6, 5)])
def test_transforms_convolve(points: int, taps: int) -> None:
    """In float64, along one axis, the three transforms together are the convolution."""
    rng = np.random.default_rng(0)
    data, weights, outputs = rng.standard_normal(points), rng.standard_normal(taps), points + 1 - taps

    class Number(float):
        """A float64 that multiplies with TVM's constants."""

        def __add__(self, other: float) -> Number:
            return Number(float(self) + float(other))

        def __sub__(self, other: float) -> Number:
            return Number(float(self) - float(other))

        def __mul__(self, other: object) -> Number:
            return Number(float(self) * float(getattr(other, "value", other)))

    transformed = data_transform([Number(x) for x in data]), filter_transform(points, [Number(x) for x in weights])
    products = [Number(float(a) * float(b)) for a, b in zip(*transformed, strict=True)]
    expected = [data[i : i + taps] @ weights for i in range(outputs)]
    got = [float(value) for value in output_transform(products, outputs)]
    assert_near(np.array(got), np.array(expected), summed=points * taps, dtype="float32")  # its constants are f32


def test_the_manifest_tells_class_and_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    problem, records = parse_signature(SMALL), Records(tmp_path / "records")
    path = build([problem], tmp_path / "b", jobs=1, records=records, target=host_without_tiles())
    (entry,) = read_bundle(path).entries
    assert (entry.algorithm, entry.numerical_class) == ("winograd4", "transform")
    assert entry.error is not None and entry.error["measure"] == "relative_l2"
    assert 0 < entry.error["value"] < ROWS["f32"].transform_error
    assert [verdict.status for verdict in verify(path)] == ["right"]
    assert cli.main(["list", str(path)]) == 0
    assert f"relative_l2 {entry.error['value']:g}" in capsys.readouterr().out


def test_strict_math_excludes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the spaces that are searched, from what records suggest, and so from a build; test_tuner.py has `tune`."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    problem, records, host = parse_signature(SMALL), Records(), host_without_tiles()
    assert {space.numerical_class for space in spaces_of(problem, host)} == {"exact", "transform"}
    strict = spaces_of(problem, host, "strict")
    assert {space.numerical_class for space in strict} == {"exact"}
    made = (1e-6, 2e-6, 7, 0, "a machine", "2026-01-31", {})
    signature = format_signature(problem)
    winograd = Record(signature, host.name, "winograd4", 1, 0, (), *made)
    direct = Record(signature, host.name, "direct", 1, 0, strict[0].sketches[0].default, *made, rank=1)
    records.put([winograd, direct])
    assert records.best(problem, host) == winograd
    assert records.best(problem, host, "strict") == direct
    assert cli.main(["build", SMALL, "-o", str(tmp_path / "b"), "--math", "strict", "--target", host.name]) == 0
    (entry,) = read_bundle(tmp_path / "b").entries
    assert (entry.algorithm, entry.origin, entry.error) == ("direct", "tuned", {"measure": "exact", "value": 0.0})


def test_a_wrong_math_is_refused(tmp_path: Path) -> None:
    problem = parse_signature(SMALL)
    with pytest.raises(TvmconvError, match="math is 'fast'"):
        build([problem], tmp_path / "b", math="fast")
    with pytest.raises(TvmconvError, match="math is 'fast'"):
        tuner.tune([problem], math="fast", records=Records(tmp_path))
    with pytest.raises(SystemExit):
        cli.main(["build", SMALL, "-o", str(tmp_path / "b"), "--math", "fast"])
    assert not (tmp_path / "b").exists()
