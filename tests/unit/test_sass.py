"""The machine code of GPUs as text: finding NVIDIA's tools, and saying what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tvmconv.errors import ToolchainError
from tvmconv.lowering.cuda import nvcc, sass


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return the only folder in which programs are looked for; it is empty."""
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(nvcc, "_USUAL_HOME", str(tmp_path / "usual"))
    monkeypatch.setattr(sass, "_PACKAGES", {"cuobjdump": "no-such-package", "nvdisasm": "nor-this"})
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()
    return tmp_path / "bin"


def program(folder: Path, name: str, script: str) -> None:
    """Write a program."""
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def test_tools_that_are_missing(folder: Path) -> None:
    with pytest.raises(ToolchainError, match=r"there is no cuobjdump.*pip install no-such-package nor-this"):
        sass.disassemble(b"code")
    program(folder, "cuobjdump", "exit 0")
    with pytest.raises(ToolchainError, match="there is no nvdisasm"):
        sass.disassemble(b"code")


def test_what_they_print(folder: Path) -> None:
    # It calls the other one by its name.
    program(folder, "cuobjdump", 'read -r code < "$2"; echo "$1 $code"; nvdisasm')
    program(folder, "nvdisasm", "echo FFMA")
    assert sass.disassemble(b"code\n") == "--dump-sass code\nFFMA\n"


def test_a_tool_that_fails(folder: Path) -> None:
    program(folder, "cuobjdump", "echo 'not a fatbin' >&2; exit 1")
    program(folder, "nvdisasm", "exit 0")
    with pytest.raises(ToolchainError, match=r"(?s)cuobjdump failed.*not a fatbin.*older than the nvcc"):
        sass.disassemble(b"code")
