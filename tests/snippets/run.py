"""One page's blocks, run in a folder: files are written, commands and Python run, and what tutorials show is compared."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from tests.snippets.blocks import COMMANDS, PYTHON, ROOT, Block, read_blocks
from tests.snippets.supplies import BEFORE, FIRST, supply

# Programs and packages that a machine may lack.
PROGRAMS = (
    "aarch64-linux-gnu-gcc",
    "cmake",
    "g++",
    "nvcc",
    "qemu-aarch64-static",
    "wine",
    "x86_64-w64-mingw32-gcc",
)
PACKAGES = {
    "README": ("torch",),
    "models": ("rapidocr_onnxruntime",),
    "networks": ("onnx",),
    "pytorch": ("torch",),
    "pytorch-server": ("fastapi", "httpx", "torch"),
    "systems": ("ziglang",),
    "tuning": ("cloudpickle", "psutil", "xgboost"),
    "web": ("ziglang",),
}
# Commands in other words: what .ci/setup installs is there; a measurement says what it would do; a server is stopped;
# a search takes a second, after which it may have found nothing.
CHANGES = (
    (re.compile(r"^(?:pip|apt|\.venv/bin/pip) .*\n", re.MULTILINE), ""),
    (re.compile(r"^(?:\.venv/bin/)?(python -m (?:benchmarks|tests)\.\w+)\b.*$", re.MULTILINE), r"\1 --help"),
    (re.compile(r"^make ", re.MULTILINE), f"make -n -C '{ROOT}' "),
    (re.compile(r"^(python \S+/serve\.py)", re.MULTILINE), r"timeout 3 \1 || test $? = 124"),
    (re.compile(r"^(tvmconv tune [^#\n]*)", re.MULTILINE), r"\1 || test $? = 1 "),
    (re.compile(r"(--seconds |\bseconds=)\d+"), r"\g<1>1"),
)

# Lines of a file, with which tests/unit/test_documents.py compares them.
QUOTED = re.compile(r"# \S+/\S+\.py\n")


class Run:
    """A page in a folder.

    Attributes
    ----------
    left
        Lines of blocks that were not run, with the reason.
    """

    def __init__(self, page: Path, folder: Path) -> None:
        self.page, self.folder = page, folder
        self.python = ""
        self.printed: str | None = ""  # None: of a block that was not run
        self.left: list[str] = []
        self.tutorial = page.parent.name == "tutorials"
        home = folder / "home"
        home.mkdir()
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        found = f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"
        self.environment = {**os.environ, "PATH": path, "HOME": str(home), "PYTHONPATH": found}

    def run(self) -> None:
        """Run all blocks.

        Raises
        ------
        AssertionError
            One fails, or prints something else than a tutorial shows.
        """
        if not self.tutorial:
            supply(self.folder, self.page.stem)
            self.python = BEFORE.get(self.page.stem, "")
            self.call("sh", "-ec", FIRST.get(self.page.stem, ""))
        for block in read_blocks(self.page):
            if reason := block.reason or lacking(block):
                self.left.append(f"{block.line}: {reason}")
                self.printed = None
            else:
                self.run_block(block)

    def run_block(self, block: Block) -> None:
        """Do what a block is for."""
        text = block.text
        if block.title:
            (self.folder / block.title).write_text(text)
            return
        for pattern, other in CHANGES:
            text = pattern.sub(other, text)
        if block.language in COMMANDS:
            self.call("sh", "-ec", text)
        elif block.language in PYTHON:
            self.python += text
            self.call(sys.executable, "-c", self.python)
        elif self.tutorial and self.printed is not None:
            assert block.text in self.printed, f"{self.page}:{block.line} shows\n{block.text}not\n{self.printed}"

    def call(self, *command: str) -> None:
        """Run a program and keep what it prints."""
        done = subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True, env=self.environment, stdin=subprocess.DEVNULL
        )
        assert done.returncode == 0, f"{self.page}: {command[-1]}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        self.printed = done.stdout + done.stderr


def lacking(block: Block) -> str:
    """Return why a block is not run here, empty if it is."""
    if QUOTED.match(block.text):
        return "quoted"
    words = block.text.split() if block.language in COMMANDS else ()
    needed = {*words, "nvcc"} if any(word.startswith("cuda:") for word in words) else set(words)
    return ", ".join(f"there is no {name}" for name in PROGRAMS if name in needed and shutil.which(name) is None)


def lacking_packages(page: Path) -> list[str]:
    """Return the packages of a page that are not here."""
    return [name for name in PACKAGES.get(page.stem, ()) if find_spec(name) is None]


if __name__ == "__main__":
    for name in sys.argv[2:]:
        folder = Path(sys.argv[1]) / Path(name).stem
        folder.mkdir(parents=True)
        run = Run(Path(name), folder)
        run.run()
        print(name, *run.left, sep="\n    ")
