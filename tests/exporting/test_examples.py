"""The examples for C, C++ and Rust, and the C of docs/c.md, do what they say."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from exporting.conftest import STRICT, needs_cmake, run
from tvmconv import cli
from tvmconv.exporting.exporter import export_c

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
SIGNATURE = "conv2d-n1-i64x56x56-o64x56x56-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32"


@pytest.fixture(scope="module")
def conv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the library that the examples for C and Rust use."""
    folder = tmp_path_factory.mktemp("conv")
    assert cli.main(["build", SIGNATURE, "--jobs", "1", "-o", str(folder / "conv.bundle")]) == 0
    return export_c(folder / "conv.bundle", folder / "conv")


def test_c(conv: Path, tmp_path: Path) -> None:
    command = ("gcc", "-O2", *STRICT, EXAMPLES / "c/threads.c", f"-I{conv}", conv / "libconv.a", "-pthread")
    run(*command, "-o", tmp_path / "threads")
    assert run(tmp_path / "threads") == "100 calls in 4 threads: the bits of one thread\n"


def test_rust(conv: Path, tmp_path: Path) -> None:
    if shutil.which("cargo") is None or subprocess.run(["cargo", "--version"], capture_output=True).returncode:
        pytest.skip("cargo is not installed, or rustup has no toolchain")
    shutil.copytree(EXAMPLES / "rust", tmp_path / "rust")
    printed = run("cargo", "run", "--release", "--offline", cwd=tmp_path / "rust", CONV_DIR=str(conv))
    assert printed.startswith("the same bits in one thread and in four")


@needs_cmake
def test_cpp(tmp_path: Path) -> None:
    run(sys.executable, EXAMPLES / "cpp/make_model.py", tmp_path / "spots.onnx")
    library = tmp_path / "spots"
    assert cli.main(["compile", str(tmp_path / "spots.onnx"), "--format", "c", "-o", str(library)]) == 0
    flags = "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror"
    run("cmake", "-S", EXAMPLES / "cpp", "-B", tmp_path / "build", f"-Dspots_DIR={library}", flags)
    run("cmake", "--build", tmp_path / "build")
    picture = np.full((96, 128, 3), 30, np.uint8)
    spots = {(40, 20), (100, 70), (12, 80)}
    for x, y in spots:
        picture[y - 1 : y + 2, x - 1 : x + 2] = 250
    (tmp_path / "picture.ppm").write_bytes(b"P6\n128 96\n255\n" + picture.tobytes())
    lines = run(tmp_path / "build" / "detect", tmp_path / "picture.ppm").splitlines()
    assert {tuple(map(int, line.split()[:2])) for line in lines} == spots
    (tmp_path / "small.ppm").write_bytes(b"P6\n12 9\n255\n" + bytes(12 * 9 * 3))
    with pytest.raises(AssertionError, match="is no PPM"):
        run(tmp_path / "build" / "detect", tmp_path / "small.ppm")


def test_programs_of_the_page(conv: Path, tmp_path: Path) -> None:
    """Those that include conv.h; what they are linked with stands in the page."""
    texts = re.findall(r"```c title=.*?\n(.*?)```", (ROOT / "docs/c.md").read_text(), re.DOTALL)
    programs = [text for text in texts if "conv.h" in text]
    assert programs
    for program in programs:
        (tmp_path / "use.c").write_text(program)
        run("gcc", *STRICT, "use.c", f"-I{conv}", conv / "libconv.a", "-o", "use", cwd=tmp_path)
        run("./use", cwd=tmp_path)
