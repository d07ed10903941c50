"""Winograd convolutions: right at every edge, the error within its limit, and left out by strict math."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from kernels import assert_right, compile_and_call

from tvmconv import algorithms, cli, fills, reference, tuner
from tvmconv.builder import build
from tvmconv.bundle import read_bundle
from tvmconv.compiler import Choice
from tvmconv.definitions.winograd_transforms import data_transform, filter_transform, output_transform
from tvmconv.errors import TvmconvError
from tvmconv.measure import TRANSFORM_ERROR, relative_error
from tvmconv.records import Records
from tvmconv.signature import parse_signature
from tvmconv.target import Target
from tvmconv.verify import verify

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
    # No tap meets the output.
    "backprop1d-n1-i8x2-o16x1-k2-s4-d1-p3_2-g1-NXC-XIO-f32-bias",
    # Narrower types.
    "conv2d-n1-i16x9x9-o24x9x9-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f16-bias",
    "backprop2d-n1-i16x9x9-o24x9x9-k3x3-s1x1-d1x1-p1x1_1x1-g1-NCX-OIX-bf16-bias",
]
# The most that rounding the output alone can make of it.
ROUNDING = {"f16": 2.0**-11, "bf16": 2.0**-8}


@pytest.mark.parametrize("signature", EDGES)
def test_both_structures_are_right(signature: str, tmp_path: Path) -> None:
    problem = parse_signature(signature)
    other = algorithms.get(NAMES[1])
    last = len(other.sketches(other.define(problem, HOST), HOST)) - 1
    # The default of one, and of the other the last, which is of the other structure.
    assert_right(problem, HOST, tmp_path, Choice(NAMES[0]))
    assert_right(problem, HOST, tmp_path, Choice(NAMES[1], last))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("signature", EDGES)
def test_every_sketch_is_right(signature: str, name: str, tmp_path: Path) -> None:
    problem, algorithm = parse_signature(signature), algorithms.get(name)
    for number in range(len(algorithm.sketches(algorithm.define(problem, HOST), HOST))):
        assert_right(problem, HOST, tmp_path, Choice(name, number))


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_sums_are_rounded_once(dtype: str, tmp_path: Path) -> None:
    problem = parse_signature(SMALL.replace("f32", dtype))
    arrays = fills.random_fill(problem)
    expected = reference.compute(problem, *arrays)
    error = relative_error(compile_and_call(problem, HOST, tmp_path, arrays, Choice("winograd4")), expected)
    assert 0 < error < ROUNDING[dtype]


@pytest.mark.parametrize("taps", [2, 5])
def test_error_of_other_taps_is_within_the_limit(taps: int, tmp_path: Path) -> None:
    kernel, end = f"k{taps}x{taps}", taps // 2
    problem = parse_signature(
        f"conv2d-n1-i512x8x8-o32x{9 - taps % 2}x{9 - taps % 2}-{kernel}-s1x1-d1x1-p{end}x{end}_{end}x{end}-g1-NXC-XIO-f32"
    )
    arrays = fills.random_fill(problem)
    expected = reference.compute(problem, *arrays)
    error = relative_error(compile_and_call(problem, HOST, tmp_path, arrays, Choice("winograd4")), expected)
    assert 0 < error < TRANSFORM_ERROR["f32"] / 3


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("name", NAMES)
def test_other_targets_are_right(name: str, target: str, tmp_path: Path) -> None:
    cpu = Target.parse(target)
    if missing := set(cpu.features) - set(HOST.features):
        pytest.skip(f"this machine has no {', '.join(sorted(missing))}")
    for signature in EDGES[:2]:
        assert_right(parse_signature(signature), cpu, tmp_path, Choice(name))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("channels", [64, 512, 2048])
def test_error_is_within_the_limit(channels: int, name: str, tmp_path: Path) -> None:
    problem = parse_signature(f"conv2d-n1-i{channels}x8x8-o32x8x8-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32")
    arrays = fills.random_fill(problem)
    expected = reference.compute(problem, *arrays)
    error = relative_error(compile_and_call(problem, HOST, tmp_path, arrays, Choice(name)), expected)
    # A third of the limit leaves room for other data.
    assert 0 < error < TRANSFORM_ERROR["f32"] / 3


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
    np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_the_manifest_tells_class_and_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    problem, records = parse_signature(SMALL), Records(tmp_path / "records")
    path = build([problem], tmp_path / "b", jobs=1, records=records)
    (entry,) = read_bundle(path).entries
    assert (entry.algorithm, entry.numerical_class) == ("winograd4", "transform")
    assert entry.error is not None and entry.error["measure"] == "relative_l2"
    assert 0 < entry.error["value"] < TRANSFORM_ERROR["f32"]
    assert [verdict.status for verdict in verify(path)] == ["right"]
    assert cli.main(["list", str(path)]) == 0
    assert f"relative_l2 {entry.error['value']:g}" in capsys.readouterr().out


def test_strict_math_excludes_it(tmp_path: Path) -> None:
    problem, records = parse_signature(SMALL), Records(tmp_path / "records")
    path = build([problem], tmp_path / "b", math="strict", jobs=1, records=records)
    (entry,) = read_bundle(path).entries
    assert (entry.algorithm, entry.error) == ("direct", {"measure": "exact", "value": 0.0})
    # Even where the best record is a transform's.
    tuner.tune([problem], trials=2, records=records)
    best = records.best(problem, HOST)
    assert best is not None and best.algorithm.startswith("winograd")
    strict = records.best(problem, HOST, "strict")
    assert strict is None or strict.algorithm == "direct"
    (result,) = tuner.tune([problem], trials=2, math="strict", records=records)
    assert result.record is not None and result.record.algorithm == "direct"
    build([problem], path, math="strict", jobs=1, records=records)
    assert [entry.algorithm for entry in read_bundle(path).entries] == ["direct"]


def test_a_wrong_math_is_refused(tmp_path: Path) -> None:
    problem = parse_signature(SMALL)
    with pytest.raises(TvmconvError, match="math is 'fast'"):
        build([problem], tmp_path / "b", math="fast")
    with pytest.raises(TvmconvError, match="math is 'fast'"):
        tuner.tune([problem], math="fast", records=Records(tmp_path))
    with pytest.raises(SystemExit):
        cli.main(["build", SMALL, "-o", str(tmp_path / "b"), "--math", "fast"])
    assert not (tmp_path / "b").exists()


def test_the_command_line_takes_strict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert cli.main(["build", SMALL, "-o", str(tmp_path / "b"), "--math", "strict"]) == 0
    capsys.readouterr()
    assert cli.main(["list", str(tmp_path / "b"), "--json"]) == 0
    assert [entry["algorithm"] for entry in json.loads(capsys.readouterr().out)] == ["direct"]
    folder = ["--records", str(tmp_path / "records")]
    assert cli.main(["tune", SMALL, "--trials", "1", "--math", "strict", "--json", *folder]) == 0
    assert [result["algorithm"] for result in json.loads(capsys.readouterr().out)] == ["direct"]
