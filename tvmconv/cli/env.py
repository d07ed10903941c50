"""`tvmconv env`: print the facts about this installation and machine that a bug report needs."""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from ..version import __version__
from .output import print_json, print_table
from .parsing import add_command, add_json

if TYPE_CHECKING:
    from .parsing import Subparsers

EXAMPLE = "  tvmconv env\n  tvmconv env --json\n"
PACKAGES = ("apache-tvm-ffi", "numpy", "apache-tvm", "ml_dtypes", "onnx", "torch")
ABSENT = "not installed"


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers, "env", "Print versions, CPU features, threads and GPUs, for a bug report.", EXAMPLE, run
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the facts."""
    facts = _facts()
    if arguments.json:
        print_json(facts)
    else:
        print_table(("what", "value"), [(name, _text(value)) for name, value in facts.items()])
    return 0


def _facts() -> dict[str, object]:
    from ..isa.machine import cpu_features, model_name
    from ..runtime.pages import setting
    from ..runtime.processors import allowed_processors, kernel_threads, nodes

    return {
        "tvmconv": __version__,
        "python": f"{platform.python_version()} ({sys.executable})",
        **{name: package_version(name) for name in PACKAGES},
        "system": platform.platform(),
        "cpu": model_name(),
        "cpu features": sorted(cpu_features()),
        "logical cpus": os.cpu_count(),
        "cpus this process may use": len(allowed_processors()),
        "processors of each node of memory": [str(len(each)) for each in nodes().values()] or "not known",
        "threads of a kernel by default": kernel_threads(),
        "huge pages": setting(),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "not set"),
        "C compiler": _compiler(),
        "nvcc": _nvcc(),
        "GPUs": _gpus(),
    }


def package_version(name: str) -> str:
    """Return the version of an installed package, or that it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ABSENT


def _compiler() -> str:
    from ..errors import ToolchainError
    from ..support.toolchain import find_compiler

    try:
        (path,) = find_compiler()
    except ToolchainError:
        return ABSENT
    done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    return f"{path}: {(done.stdout or done.stderr).partition(chr(10))[0]}"


def _nvcc() -> str:
    from ..errors import ToolchainError
    from ..lowering.cuda.nvcc import nvcc_paths, nvcc_version

    try:
        return ", ".join(f"{nvcc}: CUDA {nvcc_version(nvcc)}" for nvcc in nvcc_paths())
    except ToolchainError:
        return ABSENT


def _gpus() -> list[str] | str:
    from ..runtime.cuda.gpus import survey

    found = survey()
    return found.obstacle or [str(gpu) for gpu in found.gpus]


def _text(value: object) -> str:
    return " ".join(value) if isinstance(value, list) else str(value)
