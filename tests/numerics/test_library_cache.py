"""Libraries that `tvmconv compile` wrote before: copied without the compiler, and compiled anew where anything that decides them is another."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

pytest.importorskip("tvm")

from tests.models import fixed, model, save, value
from tvmconv.cli import main, parser
from tvmconv.cli.networks.known import KnownLibrary, Told
from tvmconv.errors import TvmconvWarning
from tvmconv.support.cache import VARIABLE, Cache, open_cache

_WITHOUT = "import sys; sys.modules.update(tvm=None, onnx=None); from tvmconv.cli import main; sys.exit(main())"
Files = tuple[Path, Path]


def a_model(seed: int = 0) -> onnx.ModelProto:
    node = onnx.helper.make_node("Conv", ["x", "w"], ["y"])
    return model([node], [value("x", (1, 8, 6, 6))], [value("y", None)], [fixed("w", 8, 8, 3, 3, seed=seed)])


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """Return a model with its library and the command's output beside it, and the cache that its compilation filled."""
    folder = tmp_path_factory.mktemp("compiled")
    save(a_model(), folder)
    return folder / "model.onnx", folder / "cache"


@pytest.fixture
def files(compiled: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    """Return the model and the cache, copied."""
    path, cache = compiled
    if not cache.exists():
        monkeypatch.setenv(VARIABLE, str(cache))
        assert main(["compile", str(path), "-o", str(path.with_name("first.so"))]) == 0
    shutil.copytree(path.parent, tmp_path / "here")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "here/cache"))
    return tmp_path / "here/model.onnx", tmp_path / "here/cache"


def look_up(path: Path, *options: str) -> Told | None:
    output = path.with_name("network.so")
    return KnownLibrary(parser().parse_args(["compile", str(path), "-o", str(output), *options])).write(output)


def test_the_same_again_needs_no_compiler(files: Files) -> None:
    path, _ = files
    moved, output = path.with_name("moved.onnx"), path.with_name("again.so")
    path.rename(moved)
    command = [sys.executable, "-c", _WITHOUT, "compile", str(moved), "-o", str(output), "--require-comparison"]
    missed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert missed.returncode == 3 and not output.exists()  # another option
    done = subprocess.run(command[:-1], capture_output=True, text=True, check=True)
    assert done.stdout == f"{output}\n"
    assert done.stderr.startswith(f"{moved}: 1 of 1 convolutions") and "agree with the model's" in done.stderr
    first = path.with_name("first.so")
    assert output.read_bytes() == first.read_bytes()
    assert output.stat().st_mode == first.stat().st_mode


def test_with_and_without_the_cache_the_same_is_said(
    files: Files, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = files
    output = path.with_name("first.so")
    command = ["compile", str(path), "-o", str(output), "--json"]
    before = output.read_bytes()
    assert main(command) == 0
    said = capsys.readouterr()
    output.unlink()
    monkeypatch.setattr(KnownLibrary, "write", lambda *_: None)
    assert main(command) == 0
    assert capsys.readouterr() == said and output.read_bytes() == before


def test_what_decides_a_library_is_in_its_key(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    path, _ = files
    assert look_up(path) is not None and look_up(path, "--json", "--timing") is not None
    records = path.with_name("records")
    records.mkdir()
    options = (
        "--math=strict",
        "--target=x86-64-v3",
        "--layout=NCX",
        "--trials=1",
        f"--records={records}",
        "--file=small",
    )
    assert not any(look_up(path, each) for each in options)
    for name, changed in (("sources", lambda: "x"), ("versions", lambda: ["0"]), ("cpu_features", lambda: ["none"])):
        with monkeypatch.context() as patch:
            patch.setattr(f"tvmconv.support.origin.{name}", changed)
            assert look_up(path) is None, name
    with monkeypatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "2" if os.environ.get("OMP_NUM_THREADS") == "1" else "1")
        assert look_up(path) is None or os.cpu_count() == 1
        patch.setenv(VARIABLE, "")
        assert look_up(path) is None
    save(a_model(seed=1), path.parent)
    assert look_up(path) is None


def test_weights_in_another_file_count(files: Files) -> None:
    path, _ = files
    made = a_model()
    onnx.save(made, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    assert main(["compile", str(path), "-o", str(path.with_name("network.so"))]) == 0
    assert look_up(path) is not None
    weights = path.with_name("weights.bin")
    kept = weights.read_bytes()
    weights.write_bytes(np.ones(8 * 8 * 9, np.float32).tobytes())
    assert look_up(path) is None
    weights.write_bytes(kept)
    assert look_up(path) is not None
    weights.unlink()
    assert look_up(path) is None


def test_a_model_that_changes_meanwhile_is_not_kept(files: Files) -> None:
    path, cache = files
    Cache(cache).clear()
    output = path.with_name("first.so")
    for is_kept in (False, True):
        library = KnownLibrary(parser().parse_args(["compile", str(path), "-o", str(output)]))
        assert library.write(output) is None
        if not is_kept:
            os.utime(path, (0, 0))
        library.keep(output, Told(["said"], []))
        assert look_up(path) == (Told(["said"], []) if is_kept else None)


def test_a_damaged_one_is_compiled_anew(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    path, _ = files
    known = open_cache()
    assert known is not None
    largest = max(known.files(), key=lambda each: each.bytes)
    file = known.folder / largest.key[:2] / largest.key[2:]
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.warns(TvmconvWarning, match="is damaged"):
        assert look_up(path) is None
    file.write_bytes(content)
    output = path.with_name("again.so")
    assert main(["compile", str(path), "-o", str(output)]) == 0
    assert output.read_bytes() == path.with_name("first.so").read_bytes() and look_up(path) is not None
