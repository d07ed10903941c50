"""The machine code of a fatbin as text (SASS), by NVIDIA's cuobjdump, which calls nvdisasm; ToolchainError if one fails."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from ...errors import ToolchainError
from .nvcc import tool_paths

_PACKAGES = {"cuobjdump": "nvidia-cuda-cuobjdump", "nvdisasm": "nvidia-cuda-nvdisasm"}


def disassemble(fatbin: bytes) -> str:
    """Return the machine code for each architecture that a fatbin holds code for."""
    cuobjdump, nvdisasm = map(_find, _PACKAGES)
    path = os.pathsep.join([str(Path(nvdisasm).parent), os.environ.get("PATH", os.defpath)])
    with tempfile.TemporaryDirectory(prefix="tvmconv-") as folder:
        (Path(folder) / "kernel.fatbin").write_bytes(fatbin)
        command = (cuobjdump, "--dump-sass", "kernel.fatbin")
        result = subprocess.run(
            command, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
        )
    if result.returncode:
        raise ToolchainError(
            f"cuobjdump failed ({' '.join(command)}), with:\n{(result.stderr or result.stdout).strip()}\n"
            "it must not be older than the nvcc that compiled the kernel"
        )
    return result.stdout


def _find(tool: str) -> str:
    paths = tool_paths(tool, _PACKAGES[tool])
    if not paths:
        raise ToolchainError(
            f"there is no {tool}, which shows the machine code of GPUs: not on the PATH, nor in CUDA_HOME, CUDA_PATH, "
            f"/usr/local/cuda or the package {_PACKAGES[tool]}; install NVIDIA's CUDA toolkit, or: "
            f"pip install {' '.join(_PACKAGES.values())}"
        )
    return paths[0]
