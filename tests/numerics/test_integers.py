"""Convolutions of integers: sums are exact and bits the reference's, by every algorithm, whatever layouts, types and roundings."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from campaign.check import Case
from toys import compile_bundle

from tvmconv import load
from tvmconv.algorithms import table as algorithms
from tvmconv.errors import BundleError, InputError, TvmconvError
from tvmconv.exporting.plan import plan
from tvmconv.fills import exact_case
from tvmconv.lowering.compiler import Choice, samples
from tvmconv.problem import Problem
from tvmconv.signature import parse_signature
from tvmconv.targets.target import CpuTarget, Target

HOST = Target.parse("host")
Q = "bias-scale-q_0.1_3"
PROBLEMS = [
    # Sums that f32 has exactly, and longer ones.
    f"conv2d-n1-i16x9x9-o24x9x9-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-u8s8u8-zx128-{Q}",
    "conv2d-n1-i100x5x5-o40x5x5-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-u8s8s32-zx3",
    "conv2d-n2-i3x17x17-o32x8x8-k3x3-s2x2-d1x1-p1x1_0x0-g1-NXC-XIO-u8s8u8-zx114-bias-scale-relu-q_0.05_0",
    "conv2d-n1-i96x7x7-o40x7x7-k3x3-s1x1-d1x1-p1x1_1x1-g1-NCX-OIX-s8s8s8-zx-7-bias_f32-scale-silu-q_before_0.1_-3",
    "conv2d-n1-i256x7x7-o72x7x7-k1x1-s1x1-d1x1-p0x0_0x0-g1-NXC-OIX-u8u8f32-zw100-bias-scale-hardswish",
    "conv1d-n1-i600x33-o21x33-k3-s1-d2-p2_2-g1-NCX-XIO-s8s16f16-bias-scale-gelu",
    "conv3d-n1-i36x4x6x6-o32x4x6x6-k3x3x3-s1x1x1-d1x1x1-p1x1x1_1x1x1-g2-NXC-XIO-u8s8bf16-zx7-scale-add",
    f"backprop2d-n1-i64x5x6-o24x10x12-k4x4-s2x2-d1x1-p1x1_1x1-g1-NXC-XIO-u8s8u8-zx128-{Q}",
    "backprop2d-n1-i160x5x6-o12x10x12-k4x4-s2x2-d1x1-p1x1_1x1-g2-NCX-OIX-s8s8s8-bias-scale-add-q_reciprocal_0.1_3",
    f"conv2d-n1-i40x13x13-o40x7x7-k3x3-s2x2-d1x1-p1x1_1x1-g40-NXC-XIO-u8s8u8-zx128-{Q}",
    "conv2d-n1-i12x9x9-o12x9x9-k5x5-s1x1-d1x1-p2x2_2x2-g12-NCX-OIX-u8s16u8-zx128-bias-scale-clip_0_6-q_0.05_0",
    f"conv2d-n1-i64x9x13-o64x9x13-k3x3-s1x1-d1x1-p1x1_1x1-g8-NXC-XIO-u8s8s8-zx9-{Q}",
    "conv2d-n1-i1x28x28-o20x24x24-k5x5-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-u8s8u8-bias-scale-q_before_reciprocal_0.1_7",
    "conv2d-n1-i2048x2x2-o64x2x2-k1x1-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-u8s8s32-bias",
]  # fmt: skip


def covering(problem: Problem) -> list[str]:
    return [each.name for each in algorithms.ALGORITHMS if each.kind == "cpu" and each.covers(problem, HOST) is None]


@pytest.mark.parametrize("signature", PROBLEMS)
def test_every_algorithm_is_exact(signature: str, try_kernels: Callable[..., None]) -> None:
    problem, draw = parse_signature(signature), random.Random(signature)
    assert isinstance(HOST, CpuTarget) and "plain" in covering(problem)
    choices = []
    for name in covering(problem):
        choices.append((Choice(name), False))
        if name == "plain":
            continue
        algorithm = algorithms.get(name)
        sketches = algorithm.sketches(algorithm.define(problem, HOST), HOST)
        number = draw.randrange(len(sketches))
        decisions = tuple(draw.randrange(len(sample.attrs[0])) for sample in samples(sketches[number]))
        choices.append((Choice(name, number, decisions), True))
    try_kernels([Case(problem, HOST, 0, tuple(choices))])


def test_a_bundle_computes_what_its_signature_says(tmp_path: Path) -> None:
    """By the registry, with arrays of NumPy and PyTorch; what is left out, or another type, is refused; C libraries have none yet."""
    torch = pytest.importorskip("torch")
    signature = f"conv2d-n1-i8x5x5-o8x5x5-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-u8s8u8-zx128-{Q}"
    problem = parse_signature(signature)
    registry = load(compile_bundle(tmp_path / "bundle", [problem], quick=True))
    arrays, expected = exact_case(problem)
    kernel = registry[signature]
    for filter_ in (arrays.filter, kernel.pack(arrays.filter)):
        np.testing.assert_array_equal(kernel(arrays.data, filter_, arrays.bias, scale=arrays.scale), expected)
    named: dict[str, Any] = {"strides": (1, 1), "dilations": (1, 1), "pads_begin": (1, 1), "pads_end": (1, 1)}
    named |= {"dtype": "u8s8u8", "zero_point": 128, "epilogue": "scale-q(0.1,3)"}
    given = [torch.from_numpy(each) for each in (arrays.data, arrays.filter, arrays.bias)]
    output = registry.convolution(*given, scale=arrays.scale, **named)
    assert output.dtype == torch.uint8
    np.testing.assert_array_equal(output.numpy(), expected)
    del named["dtype"]
    with pytest.raises(InputError, match="data has type u8; of integers, give the types of data, filter and output"):
        registry.convolution(arrays.data, arrays.filter, arrays.bias, scale=arrays.scale, **named)
    with pytest.raises(InputError, match="data has type s8; this kernel takes u8"):
        kernel(arrays.data.view(np.int8), arrays.filter, arrays.bias, scale=arrays.scale)
    with pytest.raises(BundleError, match="C libraries have no kernels of integers yet"):
        plan(registry.bundles[0], "library")
    with pytest.raises(TvmconvError, match=r"no kernel for cuda:sm_90 computes problems of u8s8u8"):
        algorithms.applicable(problem, Target.parse("cuda:sm_90"))
