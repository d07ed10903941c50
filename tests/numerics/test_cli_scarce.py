"""Commands with too little memory, or a full stdout: one line, and the exit code that `tvmconv --help` has for it."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

SIGNATURE = "conv2d-n1-i3x12x12-o8x10x10-k3x3-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-f32-bias"
MAIN = "import sys; from tvmconv.cli import main; sys.exit(main())"


def run(arguments: Sequence[str], output: Any, limit: int | None = None) -> Any:
    """Return a command that ran in a process, with so many bytes of memory."""

    def limited() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    return subprocess.run(
        [sys.executable, "-c", MAIN, *arguments], stdout=output, stderr=subprocess.PIPE, text=True, preexec_fn=limited
    )


@pytest.mark.parametrize("arguments", [["env"], ["sig", SIGNATURE], ["explain", "--algorithms", SIGNATURE]])
def test_stdout_is_full(arguments: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = run(arguments, full)
    assert done.returncode == 3 and done.stderr == f"tvmconv {arguments[0]}: No space left on device\n"


@pytest.mark.parametrize("megabytes", [256, 400])
def test_little_memory(megabytes: int, tmp_path: Path) -> None:
    """LLVM is not mapped in so much."""
    pytest.importorskip("tvm")
    done = run(["build", SIGNATURE, "-o", str(tmp_path / "b")], subprocess.DEVNULL, megabytes << 20)
    assert done.returncode == 3 and done.stderr.startswith("tvmconv build: ") and done.stderr.count("\n") == 1
