"""Every algorithm for GPUs applies epilogues: run by the emulator, compared with the reference, and compiled."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_kernels import cuda_source, needs_nvcc
from emulator import run
from fake_cuda import FILTER_SHAPE, SHAPE, SIGNATURE, Array, aligned, compile_driver, machine_with, write_cuda_bundle

from tvmconv import fills
from tvmconv.accuracy import difference
from tvmconv.algorithms import table as algorithms
from tvmconv.algorithms.cuda import direct as cuda_direct
from tvmconv.epilogue import STEPS, parse_epilogue
from tvmconv.errors import InputError
from tvmconv.lowering.compiler import Choice, samples, sketches_of
from tvmconv.lowering.cuda.nvcc import compile_fatbin
from tvmconv.problem import Problem
from tvmconv.runtime.bundle import read_bundle
from tvmconv.runtime.cuda.kernel import CudaKernel
from tvmconv.signature import format_signature, parse_signature
from tvmconv.targets.cuda import CudaTarget

SM_90, SM_90A = CudaTarget.parse("cuda:sm_90"), CudaTarget.parse("cuda:sm_90a")
# What stores in different ways: a thread an output, vectors of channels or pixels, parts of a split depth, phases of a
# transposed convolution, what no tap meets, boxes; with rows or channels beyond the output.
PROBLEMS = {
    "cuda_direct": [
        "conv2d-n1-i6x6x6-o16x6x6-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f16-bias",
        "conv2d-n1-i3x18x37-o6x9x19-k7x7-s2x2-d1x1-p3x3_3x3-g1-NCX-OIX-f32-bias",
        "backprop1d-n1-i16x10-o16x28-k1-s3-d1-p0_0-g1-NXC-XIO-bf16-bias",
    ],
    "cuda_fma": [
        "conv2d-n1-i16x9x9-o20x9x9-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32-bias",
        "conv2d-n1-i16x8x8-o12x8x8-k1x1-s1x1-d1x1-p0x0_0x0-g1-NCX-OIX-f16",
        "conv1d-n1-i16x30-o9x28-k3-s1-d1-p0_0-g1-NCX-OIX-bf16-bias",
    ],
    "tensorcore": [
        "conv2d-n2-i32x9x7-o24x9x7-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-bf16-bias",
        "conv2d-n1-i256x5x5-o32x5x5-k3x3-s1x1-d1x1-p1x1_1x1-g1-NCX-OIX-f16-bias",
        "backprop1d-n1-i16x10-o16x28-k1-s3-d1-p0_0-g1-NXC-XIO-f16-bias",
    ],
    "tensorcore_tf32": ["conv2d-n1-i32x8x8-o24x8x8-k1x1-s1x1-d1x1-p0x0_0x0-g2-NCX-OIX-f32"],
    "wgmma": [
        "conv3d-n1-i24x3x9x7-o40x3x9x7-k3x1x3-s1x1x1-d1x1x1-p2x0x1_0x0x1-g1-NXC-XIO-bf16-bias",
        "conv1d-n2-i8x150-o24x150-k1-s1-d1-p0_0-g1-NXC-XIO-f16",
    ],
    "wgmma_groups": ["conv2d-n2-i48x9x9-o96x9x9-k3x3-s1x1-d1x1-p1x1_1x1-g6-NXC-XIO-f16-bias"],
    "cuda_constant": ["conv2d-n1-i0x4x4-o8x4x4-k3x3-s1x1-d1x1-p1x1_1x1-g1-NCX-XIO-f16-bias"],
}
EPILOGUES = [
    "scale-add-relu",
    "silu-prelu-add",
    "clip(-inf,2.5)-hardswish-add",
    "leaky(0.1)-gelu",
    "hardsigmoid(0.2,0.5)-scale-tanh",
    "add-elu(1.5)-scale",
    "gelu_tanh-add",
    "prelu-sigmoid-clip(0.1,0.7)",
]
CASES = [(name, signature) for name, signatures in PROBLEMS.items() for signature in signatures]


def target_of(algorithm: str) -> CudaTarget:
    return SM_90A if algorithm.startswith("wgmma") else SM_90


def check(problem: Problem, choice: Choice) -> None:
    signature = format_signature(problem)
    arrays, expected = fills.exact_case(problem)
    output = run(cuda_source(signature, target_of(choice.algorithm), choice), problem, arrays)
    wrong = difference(output, expected, "exact", problem)
    assert not wrong, f"{signature} {choice}: {wrong}"


def test_all_steps_are_tried() -> None:
    assert {step.name for epilogue in EPILOGUES for step in parse_epilogue(epilogue)} == set(STEPS)
    cuda = {each.name for each in algorithms.ALGORITHMS if algorithms.get(each.name).kind == "cuda"}
    assert set(PROBLEMS) == cuda


@pytest.mark.parametrize("number", range(len(CASES)))
def test_every_algorithm_applies_epilogues(number: int) -> None:
    algorithm, signature = CASES[number]
    problem = parse_signature(signature).with_(epilogue=parse_epilogue(EPILOGUES[number % len(EPILOGUES)]))
    check(problem, Choice(algorithm))


@pytest.mark.slow  # .ci/full runs it
@pytest.mark.parametrize(("case", "epilogue"), list(product(range(len(CASES)), EPILOGUES)))
def test_any_schedule_applies_any_epilogue(case: int, epilogue: str) -> None:
    algorithm, signature = CASES[case]
    problem = parse_signature(signature).with_(epilogue=parse_epilogue(epilogue))
    draw, (_, sketches) = random.Random(case), sketches_of(algorithm, problem, target_of(algorithm))
    number = draw.randrange(len(sketches))
    decisions = tuple(draw.randrange(len(sample.attrs[0])) for sample in samples(sketches[number]))
    check(problem, Choice(algorithm, number, decisions))


def test_neighbours_of_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_direct, "ENOUGH_THREADS", 0)
    problem = parse_signature(PROBLEMS["cuda_direct"][1]).with_(epilogue=parse_epilogue("silu-scale-add"))
    assert cuda_direct.define(problem, SM_90).windows[0].neighbours > 1
    check(problem, Choice("cuda_direct"))


def test_stores_stay_vectors() -> None:
    problem = parse_signature(PROBLEMS["tensorcore"][0]).with_(epilogue=parse_epilogue("scale-silu-add-relu"))
    source = cuda_source(format_signature(problem), SM_90, Choice("tensorcore")).source
    assert source.count("tvmconv_silu(") == 9  # its definition, and eight calls
    assert "*(uint4*)(residual_ptr" in source and "*(uint4*)(output_flat_ptr" in source


def test_the_header_is_there_only_if_it_is_called() -> None:
    for epilogue, there in (("add", False), ("scale-add", True)):
        for algorithm in ("tensorcore", "wgmma"):
            problem = parse_signature(PROBLEMS["wgmma"][0]).with_(epilogue=parse_epilogue(epilogue))
            source = cuda_source(format_signature(problem), target_of(algorithm), Choice(algorithm)).source
            assert ("tvmconv_relu(float x)" in source) == there


@needs_nvcc
@pytest.mark.parametrize("algorithm", ["cuda_fma", "tensorcore", "wgmma"])
def test_compiles(algorithm: str) -> None:
    problem = parse_signature(PROBLEMS[algorithm][0])
    problem = replace(problem, epilogue=parse_epilogue("scale-clip(-inf,6)-gelu-prelu-add-gelu_tanh-elu(0.1)"))
    source = cuda_source(format_signature(problem), target_of(algorithm), Choice(algorithm))
    assert compile_fatbin(source.source, target_of(algorithm))


def test_calls_take_what_the_epilogue_does(tmp_path: Path) -> None:
    """On arrays that say they are on a GPU: what is refused before anything is launched."""
    bundle = read_bundle(write_cuda_bundle(tmp_path / "bundle", "cuda:sm_90"))
    kernel = CudaKernel(bundle, replace(bundle.entries[0], signature=f"{SIGNATURE}-scale-add"))
    data, residual = (Array(aligned(np.zeros(SHAPE, np.float32))) for _ in range(2))
    filter = Array(aligned(np.zeros(FILTER_SHAPE, np.float32)))
    scale = Array(aligned(np.zeros(1, np.float32)))
    cases: list[tuple[dict[str, Any], str]] = [
        ({"residual": residual, "out": residual}, "out shares memory with an input"),
        ({"scale": None, "residual": residual}, "scale is missing"),
        ({"residual": residual, "slope": scale}, "slope was given, but the kernel takes none"),
        ({"residual": Array(aligned(np.zeros((2, 32, 1), np.float32)))}, "residual has shape"),
        ({"residual": residual, "scale": Array(aligned(np.zeros(1, np.float16)))}, "scale has type f16"),
    ]
    with machine_with(compile_driver(tmp_path)):
        for given, message in cases:
            with pytest.raises(InputError, match=message):
                kernel(data, filter, **{"scale": scale, **given})
