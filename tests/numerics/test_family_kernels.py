"""Kernels of families, compiled once: exact at every size, by any number of threads, and within their arrays."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from campaign.guarded import guarded
from toys import compile_bundle, compile_families, run_python

import tvmconv
from tvmconv import cli, fills, format_family, parse_family
from tvmconv.accuracy import difference
from tvmconv.building.decision.rank_families import rank_family
from tvmconv.dtypes import is_integer
from tvmconv.errors import InvalidProblemError, KernelNotFoundError, VerificationError
from tvmconv.family import Extent, ProblemFamily
from tvmconv.isa.x86.amx import TILES
from tvmconv.lowering.compiler import Choice
from tvmconv.problem import DATA_FORMATS, FILTER_FORMATS, OPS, Problem
from tvmconv.runtime.bundle import read_bundle, write_manifest
from tvmconv.runtime.family_kernel import FamilyKernel
from tvmconv.targets.target import CpuTarget, Target

DIRECT = "conv2d-n?-i16xhxw%4[8:]-o24x?x?-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32-bias-add-relu"
# One of each kind: residual, planes, a transposed one that is given its output, pixels in a row, whole tiles of Winograd, filters side by side.
FAMILIES = {
    DIRECT: "direct",
    "conv2d-n?-i9x?x?-o9x?x?-k3x5-s2x1-d1x2-psame_lower-g9-NCX-OIX-bf16": "planar",
    "backprop2d-n?-i8x?x?-o12x?x?-k4x3-s2x3-d1x1-p?-g1-NXC-XIO-f32": "direct",
    "conv3d-n?-i8x?x?x?-o16x?x?x?-k1x1x1-s1x1x1-d1x1x1-p0x0x0_0x0x0-g1-NXC-OIX-f16-scale": "direct",
    "conv2d-n?-i8x?x?-o8x?x?-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32": "winograd4",
    # Two layouts of the filter, one of them as it is.
    "conv2d-n?-i16x?x?-o16x?x?-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32": "winograd4+direct",
    "conv2d-n?-i4x?x?-o6x?x?-k2x2-s2x2-d1x1-p1x1_0x0-g1-NXC-XIO-f32": "direct",
    # Mostly padding, which taps are left out for: loops over them, and unrolled ones.
    "conv2d-n?-i16x?x?-o16x?x?-k3x3-s1x2-d5x4-p5x4_5x4-g1-NXC-XIO-f32-relu": "direct",
    "conv2d-n?-i48x?x?-o48x?x?-k3x4-s2x1-d1x3-p?-g48-NXC-XIO-f32-add": "grouped",
    # Integers: pads are zero points, and a row has any number of bytes.
    "conv2d-n?-i9x?x?-o5x?x?-k1x3-s1x1-d1x1-p?-g1-NCX-OIX-s8s8f32-zx-5-scale-add": "direct",
    "conv2d-n?-i32x?x?-o32x?x?-k3x3-s1x1-d1x1-p1x1_1x1-g32-NXC-XIO-u8s8u8-zx3-bias-scale-q_0.1_3": "grouped",
}
SIZES = ((1, 1, 1), (2, 1, 9), (1, 5, 3), (1, 13, 31), (2, 24, 25), (1, 33, 47))
SPREAD = 5  # threads that compute other blocks than one


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a bundle of families, and of one problem of the first."""
    problem = parse_family(DIRECT).problem(1, (16, 16))
    return compile_families(tmp_path_factory.mktemp("families") / "b", FAMILIES, problems=[problem])


def problems_of(family: ProblemFamily, rng: random.Random) -> Iterator[Problem]:
    """Yield problems of sizes that the family has."""
    for batch, *spatial in SIZES:
        extents = [extent.near(size) for extent, size in zip(family.in_spatial, (*spatial, spatial[0]), strict=False)]
        if family.pads == "?":
            pads = tuple(
                tuple(rng.randrange(d * (k - 1) + 1) for k, d in zip(family.kernel, family.dilations, strict=True))
                for _ in range(2)
            )
            extra = tuple(rng.randrange(s) for s in family.strides) if family.op != "convolution" else ()
        try:
            own = replace(family, pads=pads, output_padding=extra) if family.pads == "?" else family
            problem = own.problem(batch, extents)
        except InvalidProblemError:  # no output
            continue
        if not problem.is_constant:
            assert family.obstacle(problem) is None
            yield problem


def check(registry: tvmconv.Registry, problem: Problem, guard: bool = False) -> np.ndarray:
    """Compare the kernel's answers to plain and packed filters with the reference; return one."""
    kernel = registry.lookup(problem)
    assert isinstance(kernel, FamilyKernel)
    arrays, expected = fills.exact_case(problem)
    given = {
        name: guarded(each, at_end=True).view(each.dtype) if guard else each for name, each in arrays.given().items()
    }
    for filter_ in (given["filter"], kernel.pack(given["filter"])):
        out = np.full(problem.output_shape, 7 if is_integer(problem.types.output) else np.nan, expected.dtype)
        out = guarded(out, at_end=True, writable=True).view(expected.dtype) if guard else out
        kernel(**{**given, "filter": filter_}, out=out)
        assert not difference(out, expected, kernel.info.numerical_class, problem), problem
    return out


@pytest.mark.parametrize("text", FAMILIES)
def test_every_size_is_exact_by_any_number_of_threads(folder: Path, text: str) -> None:
    registries = [tvmconv.load(folder, threads=threads) for threads in (1, SPREAD, 33)]
    for problem in problems_of(parse_family(text), random.Random(1)):
        answers = [check(each, problem, guard=each is registries[0]) for each in registries]
        assert all(np.array_equal(answers[0], other) for other in answers[1:])


@pytest.mark.parametrize("seed", range(2))
def test_drawn_families_are_exact(tmp_path: Path, seed: int) -> None:
    rng, target = random.Random(seed), Target.parse("host")
    assert isinstance(target, CpuTarget)
    family = draw(rng)
    algorithm = rng.choice(list(rank_family(family, target, "strict")))
    print(seed, format_family(family), algorithm)
    registry = tvmconv.load(
        compile_families(tmp_path / "b", {format_family(family): algorithm}), threads=rng.choice((1, 2, 7))
    )
    for problem in problems_of(family, rng):
        check(registry, problem)


def draw(rng: random.Random) -> ProblemFamily:
    """Draw a family."""
    rank, op = rng.choice((1, 2, 2, 3)), rng.choice(OPS)
    kernel, strides, dilations = (
        [rng.choice(each) for _ in range(rank)] for each in ((1, 2, 3, 5), (1, 1, 2, 3), (1, 1, 2, 5))
    )
    spans = [d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)]
    fixed = tuple(tuple(rng.randrange(span) for span in spans) for _ in range(2))
    pads = rng.choice((fixed, "?", "same_upper") if op == "convolution" else (fixed, "?"))
    groups = rng.choice((1, 1, 3, 8))
    inputs, outputs = (groups * (1 if groups == 8 else rng.choice((1, 4, 11))) for _ in range(2))
    extents = (Extent(),) if pads == fixed else (Extent(), Extent(), Extent(), Extent(3, 3))  # lower than filters
    return ProblemFamily(
        op, Extent(), inputs, tuple(rng.choice(extents) for _ in range(rank)), outputs, tuple(kernel), tuple(strides), tuple(dilations), pads, groups,
        rng.choice(DATA_FORMATS), rng.choice(FILTER_FORMATS), (dtype := rng.choice(("f32", "f32", "f16", "bf16", "u8s8f32"))), rng.random() < 0.5,
        rng.choice(((), "relu", "add-relu")), zero_point=5 * (dtype == "u8s8f32"),
    )  # type: ignore[arg-type]  # fmt: skip


def test_bits_are_those_of_the_static_kernel(folder: Path, tmp_path: Path) -> None:
    family = parse_family(DIRECT)
    problems = [family.problem(1, size) for size in ((24, 40), (30, 52))]
    static = tvmconv.load(compile_bundle(tmp_path / "static", problems, choice=Choice("direct")))
    registry = tvmconv.load(folder)
    for problem in problems:
        arrays = fills.random_fill(problem).given()
        assert np.array_equal(registry.lookup(problem)(**arrays), static.lookup(problem)(**arrays))


@pytest.mark.isa(*TILES.features)
def test_a_packed_filter_has_pairs_for_tiles_and_numbers_for_vectors(tmp_path: Path) -> None:
    family = parse_family("conv2d-n?-i64x?x?-o64x?x?-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32-relu")
    bundle = compile_families(tmp_path / "b", {format_family(family): "amx_halves+direct"})
    assert "+" in read_bundle(bundle).families[0].packed_filter["layout"]
    for problem in problems_of(family, random.Random(1)):
        check(tvmconv.load(bundle, threads=2), problem)


def test_a_call_takes_the_exact_kernel_then_the_family_then_none(folder: Path) -> None:
    registry, family = tvmconv.load(folder), parse_family(DIRECT)
    assert not isinstance(registry.lookup(family.problem(1, (16, 16))), FamilyKernel)
    kernel = registry.lookup(family.problem(2, (16, 16)))
    assert isinstance(kernel, FamilyKernel)
    assert kernel.family == DIRECT
    assert pickle.loads(pickle.dumps(kernel)).problem == kernel.problem
    other = registry.lookup(family.problem(1, (9, 8)))
    arrays = fills.random_fill(other.problem).given()
    plain = other(**arrays)
    assert np.array_equal(
        other(**{**arrays, "filter": kernel.pack(arrays["filter"])}), plain
    )  # one layout for all sizes
    with pytest.raises(KernelNotFoundError, match="spatial axis 1 is 18, no multiple of 4; pad it by 2 to 20"):
        registry.lookup(family.problem(1, (16, 18)))
    explained = registry.explain(family.problem(2, (16, 16)))
    assert (explained.found, explained.family) == (True, DIRECT)


def test_memory_over_many_sizes_is_flat(folder: Path) -> None:
    registry, family = tvmconv.load(folder), parse_family(DIRECT)
    kernels = {id(registry.lookup(family.problem(1, (height, 8)))._loaded) for height in range(1, 40)}
    assert len(kernels) == 1  # what was loaded is shared
    assert len(registry._kernels) == 0


OPENMP = """
import ctypes, os
ctypes.CDLL("libgomp.so.1", mode=ctypes.RTLD_GLOBAL)
import numpy as np
import tvmconv
from tvmconv import fills, parse_family
from tvmconv.runtime import kernel

kernel.of_torch = lambda data: True
problem = parse_family(sys.argv[2]).problem(1, (100, 100))
arrays, expected = fills.exact_case(problem)
before = len(os.listdir("/proc/self/task"))
output = tvmconv.load(sys.argv[1], threads=3).lookup(problem)(**arrays.given())
print(np.array_equal(output, expected), len(os.listdir("/proc/self/task")) - before)
"""


def test_loops_of_blocks_start_no_threads_beside_openmp(folder: Path) -> None:
    """Each block is computed by one thread of OpenMP's, of which there are two beside the caller's."""
    assert run_python(OPENMP, folder, DIRECT) == "True 2"


def test_a_family_is_verified_and_refused_if_wrong(folder: Path, tmp_path: Path) -> None:
    bundle = read_bundle(folder)
    entry = next(each for each in bundle.families if each.signature == DIRECT)
    (tmp_path / entry.file).parent.mkdir()
    (tmp_path / entry.file).write_bytes((folder / entry.file).read_bytes())
    unknown = replace(entry, verified=None)
    write_manifest(replace(bundle, path=tmp_path, entries=(), families=(unknown,)))
    with pytest.warns(tvmconv.errors.TvmconvWarning, match="never checked"):
        tvmconv.load(tmp_path)
    problem = parse_family(DIRECT).problem(1, (8, 8))
    arrays, expected = fills.exact_case(problem)
    unused = tvmconv.load(tmp_path, verify="first-use").lookup(problem)
    for kernel in (unused, pickle.loads(pickle.dumps(unused))):
        assert np.array_equal(kernel(**arrays.given()), expected)
    assert [each.status for each in tvmconv.verify(tmp_path)] == ["right"]
    # The library of another family.
    wrong = next(each for each in bundle.families if each.algorithm == "winograd4")
    swapped = replace(unknown, file=wrong.file, sha256=wrong.sha256)
    (tmp_path / wrong.file).write_bytes((folder / wrong.file).read_bytes())
    write_manifest(replace(bundle, path=tmp_path, entries=(), families=(swapped,)))
    with pytest.raises((VerificationError, ValueError)):
        tvmconv.load(tmp_path, verify="first-use").lookup(problem)(**arrays.given())


def test_built_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "conv1d-n?-i8x?-o8x?-k3-s1-d1-p1_1-g1-NXC-XIO-f32"
    bundle = str(tmp_path / "b")
    assert cli.main(["build", text, "--jobs", "1", "-o", bundle]) == 0
    assert read_bundle(bundle).families[0].verified is True
    assert cli.main(["list", bundle]) == 0
    assert text in capsys.readouterr().out
    assert cli.main(["explain", "conv1d-n2-i8x100-o8x100-k3-s1-d1-p1_1-g1-NXC-XIO-f32", bundle]) == 0
    assert f"the kernel of the family {text} serves it" in capsys.readouterr().out
    capsys.readouterr()
    assert cli.main(["explain", text, bundle, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["signature"] == text
    assert cli.main(["bench", bundle]) == 0
    assert "not timed: 1 kernel for free extents" in capsys.readouterr().err
    assert cli.main(["explain", text.replace("s1", "s2"), bundle]) == 1
    assert cli.main(["explain", text, "--algorithms"]) == 0
    assert "cycles an output" in capsys.readouterr().out
