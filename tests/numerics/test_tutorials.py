"""Tutorials run as they stand: files are written, commands run, and what they print is what the page shows."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs/tutorials").glob("*.md"))
# What a page takes that not every machine has: programs and packages.
NEEDS = {
    "other-cpus": ("aarch64-linux-gnu-gcc", "qemu-aarch64-static"),
    "pytorch-server": ("fastapi", "httpx", "torch"),
}
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.stem))
def test_tutorial(page: Path, tmp_path: Path) -> None:
    for each in NEEDS.get(page.stem, ()):
        if shutil.which(each) is None and importlib.util.find_spec(each) is None:
            pytest.skip(f"{each} is not installed")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    printed = ""
    for language, title, text in BLOCK.findall(page.read_text()):
        if title:
            (tmp_path / title).write_text(text)
        elif language == "sh":
            command = ("sh", "-ec", text)
            done = subprocess.run(
                command, cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "PATH": path}
            )
            assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
            printed = done.stdout + done.stderr
        else:
            assert language == "text" and text in printed, f"{page.name} shows\n{text}and its commands print\n{printed}"


def test_every_tutorial_shows_what_its_commands_print() -> None:
    assert len(PAGES) == 5
    for page in PAGES:
        languages = [language for language, title, _ in BLOCK.findall(page.read_text()) if not title]
        assert set(languages) == {"sh", "text"} and languages[-1] == "text"
