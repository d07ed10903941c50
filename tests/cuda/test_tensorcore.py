"""Convolutions on tensor cores: their CUDA C++ run by the emulator, compared exactly with the reference."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest
from cuda_kernels import cuda_source, needs_nvcc
from emulator import run

from tvmconv import fills, reference
from tvmconv.accuracy import inaccuracy
from tvmconv.algorithms.cuda.blocks import Extents
from tvmconv.algorithms.cuda.tiles import best_tile
from tvmconv.lowering.compiler import Choice, samples, schedule
from tvmconv.lowering.cuda.lowering import CudaSource, to_source
from tvmconv.lowering.cuda.nvcc import compile_fatbin
from tvmconv.signature import parse_signature
from tvmconv.targets.cuda import CudaTarget

SM_80, SM_90 = CudaTarget.parse("cuda:sm_80"), CudaTarget.parse("cuda:sm_90")
PROBLEMS = {
    "padded": "conv2d-n2-i32x9x7-o24x9x7-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-bf16-bias",
    "strided": "conv2d-n1-i16x12x12-o40x6x6-k3x3-s2x2-d1x1-p1x1_0x0-g1-NXC-OIX-f16",
    "dilated": "conv2d-n1-i24x10x10-o16x10x10-k3x3-s1x1-d2x2-p2x2_2x2-g1-NCX-OIX-f16-bias",
    "channels_first": "conv2d-n1-i24x10x10-o16x10x10-k3x3-s1x1-d1x1-p1x1_1x1-g1-NCX-XIO-bf16",
    "pointwise_channels_first": "conv2d-n2-i64x8x8-o32x8x8-k1x1-s1x1-d1x1-p0x0_0x0-g1-NCX-OIX-f16-bias",
    "three_channels": "conv2d-n1-i3x20x20-o16x10x10-k7x7-s2x2-d1x1-p3x3_2x2-g1-NXC-XIO-f16-bias",
    "groups": "conv2d-n1-i32x8x8-o64x8x8-k3x3-s1x1-d1x1-p1x1_1x1-g2-NXC-XIO-f16-bias",
    "one_axis": "conv1d-n1-i8x30-o9x28-k3-s1-d1-p0_0-g1-NCX-OIX-bf16-bias",
    "volume": "conv3d-n1-i8x4x6x6-o16x4x6x6-k3x3x3-s1x1x1-d1x1x1-p1x1x1_1x1x1-g1-NXC-XIO-bf16",
    "pointwise": "conv2d-n1-i256x7x7-o64x7x7-k1x1-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-f16",
    "one_step": "conv2d-n1-i8x9x9-o8x9x9-k1x1-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-f16",
    "split_depth": "conv2d-n1-i512x7x7-o40x7x7-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f16-bias",
    "split_channels_first": "conv2d-n1-i256x5x5-o32x5x5-k3x3-s1x1-d1x1-p1x1_1x1-g1-NCX-OIX-bf16-bias",
    "backprop": "backprop2d-n1-i32x7x7-o16x14x14-k3x3-s2x2-d1x1-p1x1_0x0-g1-NXC-XIO-f16-bias",
    "backprop_phases": "backprop2d-n1-i32x7x7-o16x14x14-k4x4-s2x2-d1x1-p1x1_1x1-g1-NXC-OIX-bf16",
    "backprop_channels_first": "backprop2d-n1-i16x6x6-o12x12x12-k4x4-s2x2-d1x1-p1x1_1x1-g1-NCX-OIX-f16-bias",
    "backprop_groups": "backprop2d-n1-i32x6x6-o32x8x8-k3x3-s1x1-d1x1-p0x0_0x0-g2-NXC-XIO-f16",
    "backprop_holes": "backprop1d-n1-i16x10-o16x28-k1-s3-d1-p0_0-g1-NXC-XIO-f16-bias",
}


def assert_exact(source: CudaSource, signature: str) -> None:
    problem = parse_signature(signature)
    arrays, expected = fills.exact_case(problem)
    np.testing.assert_array_equal(run(source, problem, arrays), expected)


def sampled_source(signature: str, target: CudaTarget, seed: int) -> CudaSource:
    """The source of a sketch and decisions drawn at random."""
    rng, problem = random.Random(seed), parse_signature(signature)
    sketches = len(sketches_of(signature, target))
    sketch = rng.randrange(sketches)
    candidates = [len(inst.attrs[0]) for inst in samples(sketches_of(signature, target)[sketch])]
    choice = Choice("tensorcore", sketch, tuple(rng.randrange(each) for each in candidates))
    definition, scheduled = schedule(problem, target, choice)
    return to_source(scheduled.mod, definition, target)


def sketches_of(signature: str, target: CudaTarget) -> list:
    from tvmconv.algorithms import table as algorithms

    algorithm = algorithms.get("tensorcore")
    return algorithm.sketches(algorithm.define(parse_signature(signature), target), target)


@pytest.mark.parametrize("signature", PROBLEMS.values(), ids=PROBLEMS)
def test_default_is_exact(signature: str) -> None:
    source = cuda_source(signature, SM_90, Choice("tensorcore"))
    assert "tvmconv_multiply_" in source.source
    assert_exact(source, signature)


# .ci/full runs all.
@pytest.mark.parametrize(
    "name",
    [
        "padded",
        "backprop",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("dilated", "channels_first", "three_channels")),
    ],
)
def test_tf32_rounds_factors_and_nothing_else(name: str) -> None:
    signature = re.sub("b?f16", "f32", PROBLEMS[name])
    source = cuda_source(signature, SM_90, Choice("tensorcore_tf32"))
    assert_exact(source, signature)
    problem = parse_signature(signature)
    arrays = fills.random_fill(problem)
    output = run(source, problem, arrays)
    assert inaccuracy(output, reference.compute(problem, *arrays), "tf32", "f32") == ""
    assert inaccuracy(output, reference.compute(problem, *arrays), "transform", "f32"), "nothing was rounded"


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6))])
@pytest.mark.parametrize("name", ["padded", "dilated", "split_depth"])
def test_sampled_schedules_are_exact(name: str, seed: int) -> None:
    assert_exact(sampled_source(PROBLEMS[name], SM_80, seed), PROBLEMS[name])


def test_steps_run_ahead_with_one_barrier_each() -> None:
    source = cuda_source(PROBLEMS["padded"], SM_80, Choice("tensorcore")).source
    loop = source[source.index("for (int k_0") :].split("\n  }\n")[0]
    assert loop.count("__syncthreads") == 1
    assert "tvmconv_copies_wait(2);" in loop and loop.index("tvmconv_copy_16") < loop.index("tvmconv_multiply")


def test_a_long_depth_is_split_where_blocks_are_few() -> None:
    source = cuda_source(PROBLEMS["split_depth"], SM_90, Choice("tensorcore"))
    summed, added = source.launches
    assert summed.grid[1] > 1 and source.workspace_bytes
    assert "workspace" in {argument.name for argument in added.arguments}
    large = best_tile(Extents(1, 32 * 56 * 56, 256, 2304), "f16", SM_90)
    assert large.splits == 1


@needs_nvcc
@pytest.mark.parametrize("name", ["padded", pytest.param("three_channels", marks=pytest.mark.slow)])
def test_compiles_for_all_architectures(name: str) -> None:
    target = CudaTarget.parse("cuda:sm_80,sm_89,sm_90,sm_100")
    assert compile_fatbin(cuda_source(PROBLEMS[name], target, Choice("tensorcore")).source, target)


def test_tiles_by_the_model() -> None:
    large = best_tile(Extents(1, 32 * 56 * 56, 256, 2304), "f16", SM_90)
    small = best_tile(Extents(1, 49, 512, 4608), "f16", SM_90)
    assert large.rows * large.columns >= 128 * 128, "large problems take tiles that are worth their copies"
    assert small.rows * small.columns <= 64 * 64, "small ones are spread over the multiprocessors"
    assert (
        best_tile(Extents(1, 32 * 56 * 56, 256, 2304), "f16", CudaTarget.parse("cuda:sm_89")).shared_bytes <= 99 * 1024
    )


def test_few_outputs_are_not_for_it() -> None:
    from tvmconv.algorithms import table as algorithms

    problem = parse_signature(PROBLEMS["padded"]).with_(out_channels=4)
    reason = algorithms.get("tensorcore").covers(problem, SM_90)
    assert reason is not None and re.search("it takes 8 or more", reason)
