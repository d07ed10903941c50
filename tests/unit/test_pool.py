"""The pool of threads by itself, without a kernel: every index once, whoever calls, and no data race."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tvmconv.lowering.cpu.linker import compile_runtime


@pytest.mark.parametrize(
    ("flags", "rounds", "callers", "children"),
    [((), 100, 4, 10), (("-fsanitize=thread", "-g"), 60, 4, 0)],  # ThreadSanitizer cannot follow a fork
)
def test_every_index_once(flags: tuple[str, ...], rounds: int, callers: int, children: int, tmp_path: Path) -> None:
    """By up to 40 threads, within other loops and in forked children; a task that fails ends its own loop alone."""
    (tmp_path / "calls.o").write_bytes(compile_runtime(Path(__file__).with_name("pool_calls.c"), *flags))
    subprocess.run(["cc", *flags, "calls.o", "-pthread", "-o", "calls"], check=True, cwd=tmp_path)
    numbers = map(str, (rounds, callers, children))
    ran = subprocess.run([tmp_path / "calls", *numbers], capture_output=True, text=True, timeout=120)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
