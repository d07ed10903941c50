"""Networks of free extents as libraries for C: any size by one library, in every way that its headers allow."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from emulated import COMPILER, N1, WINDOWS, WINDOWS_COMPILER, emulator_of, needs_emulator, needs_wine
from models import model, save, value
from onnx import helper, numpy_helper

from tvmconv import cli
from tvmconv.accuracy import describe_differences
from tvmconv.exporting import network_header
from tvmconv.exporting.cpp_header import network_cpp_header
from tvmconv.exporting.network_part import NetworkPart
from tvmconv.support.toolchain import ZIG

from .conftest import HERE, STRICT, run

onnxruntime = pytest.importorskip("onnxruntime")

SHAPE = "x=?x3x?%2[2:4096]x?"
# Batches, heights and widths: the greatest comes first, and one of less than a block twice.
SIZES = ((2, 130, 97), (1, 2, 1), (1, 64, 66), (3, 2, 31), (1, 2, 1), (1, 48, 17))
SANITIZED = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g")


def free_model(folder: Path) -> str:
    """Return a model with a path down, one up, and a head behind a global pool, to which an input of fixed extents is added."""
    rng = np.random.default_rng(0)
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w0"], ["c0"], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Relu", ["c0"], ["r0"]),
        node("MaxPool", ["r0"], ["p"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Shape", ["r0"], ["s"]),
        node("Resize", ["p", "", "", "s"], ["u"], mode="linear"),
        node("Concat", ["u", "r0"], ["k"], axis=1),
        node("Conv", ["k", "w1"], ["y"]),
        node("GlobalAveragePool", ["p"], ["g"]),
        node("Flatten", ["g"], ["f"]),
        node("MatMul", ["f", "w2"], ["m"]),
        node("Add", ["m", "b"], ["z"]),
    ]
    shapes = {"w0": (8, 3, 3, 3), "w1": (2, 16, 1, 1), "w2": (8, 5)}
    weights = [
        numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name) for name, shape in shapes.items()
    ]
    inputs = [value("x", ["n", 3, "h", "w"]), value("b", [5])]
    return save(model(nodes, inputs, [value("y", None), value("z", None)], weights), folder)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    return free_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def library(file: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("library") / "net"
    assert cli.main(["compile", file, "--shape", SHAPE, "--format", "c", "-o", str(folder)]) == 0
    return folder


@pytest.mark.parametrize("how", [("gcc",), ("clang",), ("gcc", *SANITIZED)], ids=["gcc", "clang", "asan"])
def test_any_size_in_c(how: tuple[str, ...], file: str, library: Path, tmp_path: Path) -> None:
    if shutil.which(how[0]) is None:
        pytest.skip(f"{how[0]} is not installed")
    rng = np.random.default_rng(1)
    given, expected = [], []
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    for n, h, w in SIZES:
        arrays = {
            "x": rng.standard_normal((n, 3, h, w)).astype(np.float32),
            "b": rng.standard_normal(5).astype(np.float32),
        }
        given += [np.array([n, h, w], np.int64), *arrays.values()]
        expected += session.run(None, arrays)
    (tmp_path / "in").write_bytes(b"".join(each.tobytes() for each in given))
    strict = [each for each in STRICT if not each.startswith("-D")]
    program = tmp_path / "free"
    run(*how, *strict, "-D_GNU_SOURCE", f"-I{library}", HERE / "free.c", library / "libnet.a", "-lm", "-pthread", "-o", program)  # fmt: skip
    run(program, tmp_path / "in", tmp_path / "out")
    found = np.split(np.fromfile(tmp_path / "out", np.float32), np.cumsum([each.size for each in expected]))
    assert not found.pop().size
    answers = {str(at): each.reshape(expected[at].shape) for at, each in enumerate(found)}
    assert describe_differences(answers, expected) == []


def test_any_size_in_cpp(cpp: tuple[str, ...], library: Path, tmp_path: Path) -> None:
    command = (*cpp, *STRICT[:4], HERE / "free.cpp", f"-I{library}", library / "libnet.a")
    run(*command, "-pthread", "-o", tmp_path / "free")
    run(tmp_path / "free")


def test_its_own_test_and_what_it_shows(library: Path, tmp_path: Path) -> None:
    run("cc", *STRICT[:4], "smoke.c", "libnet.a", "-lm", "-pthread", "-o", tmp_path / "smoke", cwd=library)
    assert run(tmp_path / "smoke", cwd=library).count("y: relative L2 error") == 2
    shown = run("nm", "-g", "--defined-only", library / "libnet.a").split()
    assert {"net_extents", "net_output_extents", "net_workspace_bytes"} <= set(shown)
    text = (library / "net.h").read_text()
    assert "#define net_EXTENT_h 1 /* 2 to 4096, a multiple of 2 */" in text
    assert "#define net_OUTPUT_y 0 /* float32 [n, 2, h/2, (w - 1) // 2 + 1] */" in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "compiler", "link"),
    [
        pytest.param(N1, COMPILER, ["-lm", "-pthread", "-static"], marks=needs_emulator),
        pytest.param(WINDOWS, WINDOWS_COMPILER, ["-lsynchronization"], marks=needs_wine),
    ],
)
def test_for_another_machine(target: str, compiler: str, link: list[str], file: str, tmp_path: Path) -> None:
    """What packs its filters is compiled for this one."""
    folder = tmp_path / "net"
    command = ["compile", file, "--shape", SHAPE, "--target", target, "--format", "c", "-o", str(folder)]
    assert cli.main(command) == 0
    run(compiler, "smoke.c", "libnet.a", *link, "-o", "smoke.exe", cwd=folder)
    emulator = emulator_of(target)
    assert emulator is not None
    cpu = ("-cpu", emulator.cpu) if target == N1 else ()
    assert run(emulator.program, *cpu, "./smoke.exe", cwd=folder, WINEDEBUG="-all").count("y: relative") == 2


@pytest.mark.slow
@pytest.mark.parametrize("target", ["android", "macos", "windows-msvc"])
def test_for_a_machine_that_is_not_here(target: str, file: str, tmp_path: Path) -> None:
    """Compile with these systems' compilers, whose linkers refuse unknown symbols."""
    if find_spec(ZIG) is None or shutil.which("llvm-ar") is None or shutil.which(WINDOWS_COMPILER) is None:
        pytest.skip(f"no Python package {ZIG}, no llvm-ar or no {WINDOWS_COMPILER}")
    command = ["compile", file, "--shape", SHAPE, "--target", target, "--format", "c", "-o", str(tmp_path / "net")]
    assert cli.main(command) == 0
    if target == "windows-msvc":
        wanted = {
            each.split()[-1] for each in run("llvm-nm", "-u", tmp_path / "net" / "net.lib").split("\n") if each.strip()
        }
        assert not {each for each in wanted if "mingw" in each or each in ("snprintf", "__emutls_get_address")}


def test_an_extent_may_have_any_name(tmp_path: Path) -> None:
    """Names that are no identifiers, alike as such, or end a comment."""
    names = ["a*/b", "a.b", "class", "x[3]", "n\n"]
    ends = [{"name": "x", "shape": [*names, 2], "dtype": "float32"}]
    extents = [{"name": each, "low": 1, "high": 9, "multiple": at + 1} for at, each in enumerate(names)]
    outputs = [
        {"name": "y", "shape": ["x[3] - 1", *names], "dtype": "float32"},
        {"name": "z", "shape": [], "dtype": "bool"},
    ]
    described = {"target": "znver4", "arena_bytes": 0, "inputs": ends, "outputs": outputs, "extents": extents}
    part = NetworkPart(b"", (), described, "")
    text = network_header.header(part, "odd", "NAME_EXTENT_COUNT")
    for at, name in enumerate(("a_b", "a_b_1", "class", "x_3", "n")):
        assert f"#define odd_EXTENT_{name} {at} /* 1 to 9" in text
    assert "[x[3]/4 - 1, a?b, a.b/2, class/3, x[3]/4, n?/5]" in text
    (tmp_path / "odd.h").write_text(text)
    (tmp_path / "odd.hpp").write_text(network_cpp_header(part, "odd"))
    (tmp_path / "tables.c").write_text(network_header.tables(part, "odd"))
    assert "{-1, -2, -3, -4, -5, 2};" in (tmp_path / "tables.c").read_text()
    run(
        "c++",
        "-std=c++17",
        "-x",
        "c++",
        *STRICT[:4],
        "-Wno-pragma-once-outside-header",
        "-fsyntax-only",
        tmp_path / "odd.hpp",
    )
    run("cc", *STRICT, "-fsyntax-only", "tables.c", cwd=tmp_path)
