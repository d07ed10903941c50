"""AMX's tiles, of bf16 and of the halves of f32 and f16: right for every kind of window, and leaving no tile behind."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from dataclasses import replace
from math import prod
from pathlib import Path

import numpy as np
import pytest
import tvm_ffi
from campaign.build import compile_all, lowered
from hypothesis import assume, given, note, settings
from hypothesis import strategies as st
from kernels import assert_exact, call, exact_case
from strategies import Call, calls
from tiles import with_emulated_tiles
from tvm import tirx

from tvmconv.algorithms import table as algorithms
from tvmconv.algorithms.cpu import amx
from tvmconv.algorithms.cpu.amx_cost import BLOCKS, tile_window
from tvmconv.errors import RewriteError
from tvmconv.isa.machine import missing_features
from tvmconv.isa.x86.amx import TILES
from tvmconv.lowering.common.entry_points import EntryPoints
from tvmconv.lowering.compiler import Choice, compile_problem, default_choice, samples, schedule
from tvmconv.lowering.cpu.lowering import lower
from tvmconv.lowering.cpu.rewrites.tiles import CONFIGURE, ROLE, by_tiles
from tvmconv.signature import format_signature, parse_signature
from tvmconv.support.toolchain import run_compiler
from tvmconv.targets.target import Target

HOST = Target.parse("host")
WAYS = [("bf16", "amx"), ("f32", "amx_halves"), ("f16", "amx_halves"), ("f32", "amx_exact")]
# What a CPU with tiles has beside them, and emulation needs: f16 arithmetic apart, which no kernel is made of.
REST = [each for each in Target.parse("sapphirerapids-no-avx512fp16").features if not each.startswith("amx_")]
SPR = "sapphirerapids"
STRIDED = "conv2d-n1-i64x28x28-o128x14x14-k3x3-s2x2-d1x1-p1x1_1x1-g1-NXC-XIO-bf16"
SHAPE = "conv2d-n1-i64x14x14-o64x14x14-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-bf16"
SHAPES = [
    SHAPE + "-bias",
    "conv2d-n2-i33x9x11-o50x9x11-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-OIX-bf16-bias",  # an odd channel, tiles shifted inwards
    "conv2d-n1-i36x12x17-o24x6x8-k3x4-s2x2-d1x2-p0x1_1x4-g2-NXC-XIO-bf16",
    "conv2d-n1-i20x7x7-o6x7x7-k3x3-s1x1-d1x1-p1x1_1x1-g1-NCX-OIX-bf16-bias",
    "conv2d-n1-i70x10x15-o70x5x5-k2x3-s2x3-d2x2-p1x1_1x1-g1-NXC-XIO-bf16",
    "conv2d-n3-i256x9x7-o80x9x7-k1x1-s1x1-d1x1-p0x0_0x0-g1-NXC-OIX-bf16-bias",  # in place
    "conv1d-n2-i32x90-o48x90-k3-s1-d7-p14_0-g1-NXC-XIO-bf16-bias",  # causal
    "conv1d-n1-i64x40-o32x14-k1-s3-d1-p0_0-g1-NXC-XIO-bf16",
    "conv3d-n1-i16x4x5x6-o32x4x3x6-k3x3x3-s1x2x1-d1x1x1-p1x1x1_1x1x1-g2-NXC-XIO-bf16",
    "conv2d-n1-i32x20x19-o2x20x19-k1x1-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-bf16-bias",  # few outputs
    "conv2d-n2-i24x9x8-o39x9x8-k3x3-s1x1-d1x1-p1x1_1x1-g3-NXC-OIX-bf16-bias-relu",  # 13 a group
    "backprop2d-n1-i16x7x9-o3x13x17-k3x3-s2x2-d1x1-p1x1_1x1-g1-NXC-XIO-bf16",
    "conv2d-n1-i2x1x1-o1x1x1-k1x1-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-bf16-bias",
    "backprop2d-n2-i34x7x7-o24x13x13-k3x3-s2x2-d1x1-p1x1_1x1-g1-NXC-XIO-bf16-bias",
    "backprop2d-n1-i32x5x6-o32x20x19-k5x4-s4x3-d1x2-p1x2_0x1-g2-NCX-OIX-bf16",
    "conv2d-n2-i64x9x7-o96x9x7-k1x1-s1x1-d1x1-p0x0_0x0-g2-NCX-OIX-bf16-bias-relu",  # planes stored by squares
    "conv1d-n1-i32x3-o64x3-k1-s1-d1-p0_0-g1-NCX-XIO-bf16",  # too narrow for it
]


with_tiles = pytest.mark.isa(*TILES.features)


def random_decisions(signature: str, sketch: object) -> tuple[int, ...]:
    draw = random.Random(signature)
    return tuple(draw.randrange(len(sample.attrs[0])) for sample in samples(sketch))


@with_tiles
@pytest.mark.parametrize(("dtype", "name"), WAYS)
def test_every_order_is_exact(dtype: str, name: str, tmp_path: Path) -> None:
    """Numbers of 8 bits are one term: of f32 and f16, too."""
    algorithm, tried = algorithms.get(name), []
    for signature in SHAPES:
        problem = parse_signature(signature).with_(dtype=dtype)
        if algorithm.covers(problem, HOST) is None:
            for number, sketch in enumerate(algorithm.sketches(algorithm.define(problem, HOST), HOST)):
                tried.append((problem, Choice(algorithm.name, number, random_decisions(signature, sketch))))
    functions = [lowered(problem, HOST, choice, EntryPoints.PLAIN) for problem, choice in tried]
    kernels = compile_all(functions, HOST, str(tmp_path / "kernels.so"), quick=True)
    for (problem, choice), kernel in zip(tried, kernels, strict=True):
        assert not isinstance(kernel, Exception), f"{format_signature(problem)} by {choice}: {kernel}"
        function = tvm_ffi.load_module(kernel.path)[f"tvmconv_kernel{kernel.ending}"]
        np.testing.assert_array_equal(call(function, problem, exact_case(problem)[0]), exact_case(problem)[1])


@with_tiles
@pytest.mark.parametrize(
    ("block", "dtype", "name"),
    [*((block, *WAYS[0]) for block in BLOCKS), *((block, *way) for block in BLOCKS[:4] for way in WAYS[1::2])],
)
def test_every_block_is_exact(
    block: tuple[int, int], dtype: str, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also those that no estimate takes; numbers of 8 bits are one term."""
    monkeypatch.setattr(amx, "tile_window", lambda *of: replace(tile_window(*of), block=block, rows=4))
    # No definition kept from another block may be taken for this one: a problem for each.
    problem = parse_signature(SHAPES[1]).with_(batch=3 + BLOCKS.index(block), dtype=dtype)
    assert_exact(problem, HOST, tmp_path, Choice(name))


@with_tiles
@settings(max_examples=12)
@given(call=calls(channels=40), way=st.sampled_from(WAYS), seed=st.integers(0, 2**32))
def test_random_problems_are_exact(
    call: Call, way: tuple[str, str], seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    problem, algorithm = call.problem(dtype=way[0]), algorithms.get(way[1])
    assume(algorithm.covers(problem, HOST) is None)
    note(format_signature(problem))
    number = seed % len(algorithm.sketches(algorithm.define(problem, HOST), HOST))
    assert_exact(problem, HOST, tmp_path_factory.mktemp("kernel"), Choice(algorithm.name, number))


@pytest.mark.slow
@pytest.mark.skipif(not missing_features(TILES.features), reason="this CPU has tiles")
@pytest.mark.skipif(bool(missing_features(REST)), reason="this CPU lacks other instructions of those with tiles, too")
def test_tiles_are_right_where_they_are_emulated(tmp_path: Path) -> None:
    """The tests of tiles, here and of what is promised, in a process that has them by `tiles.c`."""
    files = [
        str(Path(__file__).with_name(name))
        for name in ("test_amx.py", "test_promises.py", "test_amx_halves.py", "test_amx_winograd.py")
    ]
    # Its handler of SIGILL would take the place of ours.
    options = (
        "-q",
        "-x",
        "-p",
        "no:faulthandler",
        "-p",
        "no:cacheprovider",
        "-k",
        "(amx or halves) and not emulated and not refuses",
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *files],
        env=with_emulated_tiles(tmp_path),
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout, done.stdout


def test_tiles_that_do_not_fit_end_an_emulated_process(tmp_path: Path) -> None:
    """A product whose tiles were never configured."""
    (tmp_path / "bad.c").write_text('int main(void) { __asm__(".byte 0xc4,0xe2,0x72,0x5c,0xc2"); }')
    run_compiler(("bad.c", "-o", "bad"), tmp_path)
    done = subprocess.run([str(tmp_path / "bad")], env=with_emulated_tiles(tmp_path), capture_output=True, text=True)
    assert missing_features(TILES.features) == () or "tiles are used before they are configured" in done.stderr
    assert done.returncode != 0


@pytest.mark.parametrize(("dtype", "algorithm"), WAYS)
def test_tiles_are_the_default_and_return_their_registers(dtype: str, algorithm: str) -> None:
    problem, target = parse_signature(STRIDED).with_(dtype=dtype), Target.parse(SPR)
    math = "strict" if algorithm == "amx_exact" else "default"
    assert default_choice(problem, target, math).algorithm == algorithm
    definition, scheduled = schedule(problem, target, Choice(algorithm))
    text = lower(scheduled.mod, definition).module.script()
    assert text.count("llvm.x86.ldtilecfg") == text.count("llvm.x86.tilerelease") > 0
    assert "tvmconv_allow_tiles" in text and "tvmconv_dot_bf16" not in text


REFUSE = """
#include <errno.h>
long syscall(long number, long what, long which, long a, long b, long c, long d) {
  if (number == 158 && what == 0x1023) return errno = 1, -1;
  register long r10 __asm__("r10") = b, r8 __asm__("r8") = c, r9 __asm__("r9") = d;
  long result;
  __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(what), "S"(which), "d"(a), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
  return result;
}
"""
CALL = """
import sys, numpy, tvm_ffi
from tvmconv.isa.machine import missing_features
assert missing_features(["amx_bf16", "amx_tile", "avx2"]) == ("amx_bf16", "amx_tile")
arrays = [numpy.zeros(shape, "uint16") for shape in ((1, 14, 14, 64), (3, 3, 64, 64), (1, 14, 14, 64))]
try:
    tvm_ffi.load_module(sys.argv[1])["tvmconv_kernel"](*map(tvm_ffi.from_dlpack, arrays))
except RuntimeError as error:
    print(error)
"""


@with_tiles
def test_a_process_that_linux_refuses_tiles_lacks_them_and_is_told(tmp_path: Path) -> None:
    (tmp_path / "refuse.c").write_text(REFUSE)
    run_compiler(("-shared", "-fPIC", "-O1", "refuse.c", "-o", "refuse.so"), tmp_path)
    compile_problem(parse_signature(SHAPE), HOST, tmp_path / "kernel.so", choice=Choice("amx"))
    done = subprocess.run(
        [sys.executable, "-c", CALL, str(tmp_path / "kernel.so")],
        env={**os.environ, "LD_PRELOAD": str(tmp_path / "refuse.so")},
        capture_output=True,
        text=True,
    )
    assert "Linux does not let this process use AMX's tiles" in done.stdout, done.stderr


def marked(value: object, annotations: dict[str, str]) -> object:
    """Return a task of one nest that stores `value`."""
    sums = tirx.decl_buffer((16, 16), "float32", "sums", scope="local")
    row, lane, task = (tirx.Var(name, "int32") for name in ("row", "lane", "task"))
    body: object = tirx.BufferStore(sums, value, [row, lane])
    for name, loop in annotations.items():
        variable = {"rows": row, "lanes": lane}.get(loop, tirx.Var(name, "int32"))
        body = tirx.For(
            variable, 0, 16 if variable in (row, lane) else 1, tirx.ForKind.SERIAL, body, annotations={ROLE: loop}
        )
    return tirx.For(task, 0, 4, tirx.ForKind.PARALLEL, body, annotations={CONFIGURE: 1})


def test_a_task_without_products_is_refused() -> None:
    nest = marked(tirx.const(0, "float32"), {"l": "lanes", "v": "vectors", "r": "rows", "t": "tiles"})
    with pytest.raises(RewriteError, match="must have one shape"):
        by_tiles(nest)


def test_what_is_no_product_of_pairs_is_refused() -> None:
    value = tirx.const(1, "float32") * tirx.Var("x", "float32")
    nest = marked(value, {"c": "pairs", "l": "lanes", "v": "vectors", "r": "rows", "t": "tiles"})
    with pytest.raises(RewriteError, match="tiles multiply pairs"):
        by_tiles(nest)


@pytest.mark.parametrize(
    ("signature", "steps"),
    [
        ("conv2d-n1-i3x30x30-o32x15x15-k7x7-s2x2-d1x1-p3x3_2x2-g1-NXC-XIO-bf16", 7),  # of 49 taps a row's in one
        ("conv2d-n1-i16x20x20-o32x20x20-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-bf16", 6),  # 24 pairs are two tiles
        ("conv2d-n1-i64x20x20-o32x20x20-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-bf16", 18),  # whole tiles already
    ],
)
def test_few_channels_share_tiles_with_a_rows_taps(signature: str, steps: int) -> None:
    (window,) = amx.tile_windows(parse_signature(signature), Target.parse("sapphirerapids"))
    assert prod(window.taps) * window.steps == steps
