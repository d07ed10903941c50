"""Code of the pages gives right answers: PyTorch's of the README, the C of the page on bundles, the TOML of that on models."""

from __future__ import annotations

import shutil
import subprocess
import warnings
from pathlib import Path

import numpy as np
import pytest
from tvm_ffi.libinfo import find_include_path, find_libtvm_ffi

import tvmconv
from tests.near import assert_near
from tests.snippets.blocks import ROOT, read_blocks
from tvmconv.errors import TvmconvWarning
from tvmconv.frontends import read_source


def block(page: str, language: str) -> str:
    (text,) = [each.text for each in read_blocks(ROOT / page) if each.language == language]
    return text


def test_pytorch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The README's model is whatever a user has, and so are its example and images."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Conv2d(8, 4, 1))
    code = block("README.md", "py")
    left = {"model": model, "example": torch.rand(1, 3, 40, 40), "image": torch.rand(1, 3, 40, 40)}
    left["other_image"] = torch.rand(1, 3, 33, 50)
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error", TvmconvWarning)  # of what PyTorch would compute
        exec(code, left)
    assert (tmp_path / "model.bundle").exists()
    with torch.no_grad():
        for output, image in (("output", "image"), ("other", "other_image")):
            assert_near(left[output], model(left[image]), 27, layers=2)


def test_c(tmp_path: Path) -> None:
    """The program of the page on bundles gives the answer that Python gets of the same kernel."""
    include, library = Path(find_include_path()), Path(find_libtvm_ffi())
    if not (include / "tvm/ffi/c_api.h").exists() or not (include / "dlpack/dlpack.h").exists():
        pytest.skip("tvm-ffi's package has no headers here")
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler here")
    program = block("docs/bundles.md", "c")
    command = ["cc", "-Wall", "-Werror", f"-I{include}", f"-L{library.parent}", f"-Wl,-rpath,{library.parent}"]
    for name, text in (("call", program), ("fail", program.replace(".v_int64 = 2", ".v_int64 = 0"))):
        (tmp_path / f"{name}.c").write_text(text)
        link = [f"{name}.c", "-Wl,--no-as-needed", "-ltvm_ffi", "-ldl", "-o", name]
        subprocess.run([*command, *link], cwd=tmp_path, check=True)

    attributes = {"strides": (1, 1), "dilations": (1, 1), "auto_pad": "same_upper"}
    problem = tvmconv.ops.convolution((1, 56, 56, 64), (3, 3, 64, 64), **attributes)
    tvmconv.build([problem], str(tmp_path / "conv.bundle"))
    rng = np.random.default_rng(0)
    data, filter = (rng.standard_normal(shape, np.float32) for shape in ((1, 56, 56, 64), (3, 3, 64, 64)))
    data.tofile(tmp_path / "data.bin")
    filter.tofile(tmp_path / "filter.bin")
    (kernel,) = (tmp_path / "conv.bundle").glob("*/conv2d-*.so")
    subprocess.run(["./call", str(kernel)], cwd=tmp_path, check=True)
    expected = tvmconv.load(str(tmp_path / "conv.bundle")).convolution(data, filter, **attributes)
    assert np.array_equal(np.fromfile(tmp_path / "output.bin", np.float32), expected.ravel())

    for arguments, message in (
        (["./call", "missing.so"], "missing.so"),
        (["./fail", str(kernel)], "the first argument must be the number of threads, at least 1"),
    ):
        wrong = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True)
        assert wrong.returncode == 1 and message in wrong.stderr


def test_toml(tmp_path: Path) -> None:
    (tmp_path / "problems.toml").write_text(block("docs/models.md", "toml"))
    assert [problem.op for problem in read_source(str(tmp_path / "problems.toml"))] == [
        "convolution",
        "convolution_backprop_data",
    ]
