"""Kernels for 64-bit ARM under QEMU: every algorithm, bundles of two instruction sets, what a CPU lacks."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from campaign.build import compile_all, lowered
from emulated import N1, V1, cpu_of, emulator_of, needs_emulator
from emulated_kernels import SECONDS, check_all, choices, plain
from test_compiler import SPACES
from test_integers import OF_QUADS, drawn
from toys import small_problem
from tvm_ffi.libinfo import find_dlpack_include_path, find_include_path

import tvmconv
from tvmconv import fills
from tvmconv.building.builder import build
from tvmconv.errors import VerificationError
from tvmconv.lowering.common.entry_points import EntryPoints
from tvmconv.lowering.compiler import Choice, compile_problem
from tvmconv.lowering.cpu import linker
from tvmconv.runtime.bundle import EMULATED, read_bundle
from tvmconv.runtime.emulation import EmulatedCall
from tvmconv.runtime.verify import verify
from tvmconv.signature import parse_signature
from tvmconv.support.toolchain import run_compiler

# Two groups of two channels fill a vector.
PAIRS_OF_CHANNELS = "conv2d-n2-i32x9x13-o32x9x13-k3x3-s1x1-d1x1-p1x1_1x1-g16-NXC-XIO-bf16-bias"
# Of matrices: quads that would share a set of L1, one pixel, pixels and channels that are left over of a stride.
OF_MATRICES = [
    "conv2d-n1-i64x3x126-o16x3x126-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-bf16",
    "conv1d-n2-i64x1-o24x1-k1-s1-d1-p0_0-g1-NXC-OIX-bf16-bias",
    "conv2d-n2-i30x9x13-o14x4x5-k3x2-s2x3-d1x2-p1x1_0x1-g2-NXC-XIO-bf16-bias-relu",
]
BATCH = 9


pytestmark = needs_emulator


@pytest.mark.parametrize(
    "first",
    [pytest.param(n, marks=[pytest.mark.slow] if n % (6 * BATCH) else []) for n in range(0, len(SPACES), BATCH)],
)
def test_every_algorithm_is_exact(first: int, tmp_path: Path) -> None:
    problems = map(parse_signature, SPACES[first : first + BATCH])
    target = cpu_of(N1)
    tried = [(each, *choice) for each in problems for choice in choices(each, target)]
    check_all(
        tried, target, emulator_of(target.name), tmp_path, quick=first != BATCH
    )  # LLVM's optimizations take half of the time


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_products_of_bf16_are_exact(step: int, tmp_path: Path) -> None:
    target = cpu_of(V1)
    of_spaces = [each for each in map(parse_signature, SPACES) if each.dtype == "bf16"][::step]
    problems = [*of_spaces, *map(parse_signature, [PAIRS_OF_CHANNELS, *OF_MATRICES])]
    of_bf16 = {"dot", "grouped_dot", "kn2row_dot", "phased_dot", "mmla"}
    tried = [(each, *choice) for each in problems for choice in choices(each, target) if choice[0].algorithm in of_bf16]
    assert {choice.algorithm for _, choice, _ in tried} == of_bf16
    check_all(tried, target, emulator_of(target.name), tmp_path, quick=True)


@pytest.mark.parametrize("name", (N1, V1))
@pytest.mark.parametrize("seeds", (0, pytest.param(300, marks=pytest.mark.slow)))
def test_bits_of_integers_are_the_references(name: str, seeds: int, tmp_path: Path) -> None:
    """By SDOT and UDOT, and USDOT and SUDOT: of fixed problems, and by all algorithms of drawn ones, as on x86 (test_integers.py)."""
    target, drawn_ones = cpu_of(name), [each for each in map(drawn, range(seeds)) if each.types.output != "bf16"]
    tried = [(parse_signature(each), Choice("quads"), number % 2 > 0) for number, each in enumerate(OF_QUADS)]
    tried += [(each, *choice) for each in drawn_ones for choice in choices(each, target)]
    check_all(tried, target, emulator_of(target.name), tmp_path, quick=True)


def test_zig_links_where_there_is_no_cross_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ziglang", reason="no ziglang: pip install ziglang")
    target, problem, which = cpu_of(N1), small_problem(bias=True), shutil.which
    arrays, expected = fills.exact_case(problem)
    with monkeypatch.context() as hidden:
        hidden.setattr(shutil, "which", lambda name: None if name in target.isa.cross_compilers else which(name))
        linker._service_object.cache_clear()  # which are the cross compiler's
        compile_problem(problem, target, tmp_path / "kernel.so")
    linker._service_object.cache_clear()
    emulator, output = emulator_of(N1), np.zeros(problem.output_shape, np.float32)
    assert emulator is not None
    emulator.run(tmp_path / "kernel.so", [("tvmconv_kernel", (*arrays.given().values(), output))], SECONDS)
    np.testing.assert_array_equal(output, expected)


def test_a_bundle_of_two_instruction_sets(tmp_path: Path) -> None:
    problems = [small_problem(dtype, bias=True) for dtype in ("f32", "bf16")]
    path = build(problems, tmp_path / "b", ["x86-64-v3", N1, V1], math="strict")
    bundle = read_bundle(path)
    assert len(bundle.entries) == 6
    foreign = [each for each in bundle.entries if each.target != "x86-64-v3"]
    assert all(each.verified == EMULATED and each.error for each in foreign)
    named = {each.target: each.emulator or "" for each in foreign}
    assert all(name.startswith("qemu-aarch64 ") for name in named.values())
    assert named[N1].endswith("-cpu neoverse-n1") and named[V1].endswith("-cpu max")
    verdicts = verify(path)
    assert {each.status for each in verdicts if each.target != "x86-64-v3"} == {"right"}
    registry = tvmconv.load(path)
    arrays, expected = fills.exact_case(problems[0])
    np.testing.assert_array_equal(registry[problems[0]](**arrays.given()), expected)


def test_what_a_cpu_lacks_is_found(tmp_path: Path) -> None:
    """Verify a V1's kernel, declared for an N1, whose emulated CPU has no dot product."""
    problem = small_problem("bf16", in_channels=64, out_channels=64)
    path = build([problem], tmp_path / "b", V1, math="strict")
    manifest = json.loads((path / "manifest.json").read_text())
    assert manifest["entries"][0]["algorithm"] in ("dot", "mmla")  # BFDOT, or BFMMLA
    features = manifest["targets"][V1]["features"]
    manifest["targets"][V1]["features"] = [each for each in features if each not in ("bf16", "i8mm")]
    (path / "manifest.json").write_text(json.dumps(manifest))
    (verdict,) = verify(path)
    assert verdict.status == "wrong" and "does not run under qemu-aarch64" in verdict.detail
    (entry,) = read_bundle(path).entries
    assert entry.verified is False


@pytest.mark.parametrize("beyond", [0, 1])
def test_an_access_beyond_an_array_is_found(beyond: int, tmp_path: Path) -> None:
    (tmp_path / "kernel.c").write_text(
        "#include <tvm/ffi/c_api.h>\n"
        "int __tvm_ffi_last(void* self, const TVMFFIAny* given, int32_t count, TVMFFIAny* result) {\n"
        "  const DLTensor *data = given[0].v_ptr, *output = given[1].v_ptr;\n"
        f"  *(float*)output->data = ((const volatile float*)data->data)[data->shape[0] - 1 + {beyond}];\n"
        "  return 0 * (self == result) * count;\n}\n"
    )
    includes = (f"-I{find_include_path()}", f"-I{find_dlpack_include_path()}")
    run_compiler(("-shared", "-fPIC", *includes, "kernel.c", "-o", "kernel.so"), tmp_path, cpu_of(N1).isa)
    data, output = np.arange(5, dtype=np.float32), np.zeros(1, np.float32)
    emulator = emulator_of(N1)
    assert emulator is not None
    call: EmulatedCall = ("last", (data, output))
    if beyond:
        with pytest.raises(VerificationError, match="does not run under qemu-aarch64"):
            emulator.run(tmp_path / "kernel.so", [call], SECONDS)
    else:
        emulator.run(tmp_path / "kernel.so", [call], SECONDS)
        assert output[0] == 4


def test_matrices_add_as_dot_products_of_pairs(tmp_path: Path) -> None:
    """BFMMLA rounds as two BFDOT after each other, so numbers that are no integers have the same sums in the same order."""
    target, random_numbers = cpu_of(V1), np.random.default_rng(0)
    problem = parse_signature("conv2d-n1-i64x5x9-o24x5x9-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-bf16")
    names = ("dot", "mmla")
    functions = [lowered(problem, target, Choice(name), EntryPoints.PLAIN) for name in names]
    kernels = compile_all(functions, target, str(tmp_path / "kernels.so"), quick=False)
    kind = fills.numpy_dtype("bf16")
    data, filter_ = (
        plain(random_numbers.standard_normal(shape).astype(np.float32).astype(kind))
        for shape in (problem.data_shape, problem.filter_shape)
    )
    outputs = [np.zeros(problem.output_shape, np.uint16) for _ in names]
    calls: list[EmulatedCall] = []
    for kernel, output in zip(kernels, outputs, strict=True):
        assert not isinstance(kernel, Exception)
        calls.append((f"tvmconv_kernel{kernel.ending}", (data, filter_, output)))
    emulator = emulator_of(V1)
    assert emulator is not None
    emulator.run(tmp_path / "kernels.so", calls, SECONDS)
    assert outputs[0].any()
    np.testing.assert_array_equal(*outputs)
