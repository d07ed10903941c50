"""NVIDIA's compiler: find it, and compile CUDA C++ to one fatbin for several architectures.

nvcc that is missing, too old for an architecture, or fails, is a ToolchainError.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from ...errors import ToolchainError
from ...targets.cuda import CudaTarget

_USUAL_HOME = "/usr/local/cuda"
_PACKAGE = "nvidia-cuda-nvcc"
_INSTALL = (
    "install NVIDIA's CUDA toolkit and put its bin folder on the PATH or set CUDA_HOME, or: pip install 'tvmconv[cuda]'"
)
# The oldest toolkit that knows an architecture (release notes of CUDA); 12.0 is also where C++17 and the driver
# interface that the launcher uses begin.
_SINCE = {80: "12.0", 86: "12.0", 89: "12.0", 90: "12.0", 100: "12.8", 120: "12.8"}
# Warnings would be of code that TVM generates, which nobody edits. Compressed code would save little and take longer to load.
_FLAGS = ("-fatbin", "-std=c++17", "-O3", "--disable-warnings", "--no-compress", "-Xptxas=-v")
# Message of ptxas, with -v, about a function that spills registers.
_SPILLS = re.compile(r"Function properties for (\w+)\s+\d+ bytes stack frame, [1-9]\d* bytes spill stores")


def tool_paths(tool: str, package: str) -> list[str]:
    """Return the paths of a program of NVIDIA's toolkit: on the PATH, in CUDA_HOME or CUDA_PATH, in its usual place, in a pip package."""
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), _USUAL_HOME]
    places = [*(Path(home) / "bin" / tool for home in homes if home), *_find_packaged(tool, package)]
    found = [shutil.which(tool), *(str(place) for place in places if os.access(place, os.X_OK))]
    return [path for path in found if path is not None]


def nvcc_paths() -> list[str]:
    """Return the paths of nvcc, as :func:`tool_paths` finds it."""
    found = tool_paths("nvcc", _PACKAGE)
    if not found:
        raise ToolchainError(
            "there is no nvcc, which compiles for cuda targets: not on the PATH, nor in CUDA_HOME, CUDA_PATH, "
            f"{_USUAL_HOME} or the package {_PACKAGE}; {_INSTALL}"
        )
    return found


def _find_packaged(tool: str, package: str) -> list[Path]:
    """Return a program's path in a pip package, if that is installed."""
    try:
        files = distribution(package).files or []
    except PackageNotFoundError:
        return []
    return [Path(str(file.locate())) for file in files if file.parts[-2:] == ("bin", tool)]


@cache
def nvcc_version(nvcc: str) -> str:
    """Return the release of `nvcc`'s toolkit, such as ``13.0``."""
    text = _run((nvcc, "--version"), None).stdout
    release = re.search(r"release (\d+\.\d+)", text)
    if release is None:
        raise ToolchainError(f"{nvcc} --version names no release: {text.strip()!r}; {_INSTALL}")
    return release[1]


def check_nvcc(target: CudaTarget) -> str:
    """Return the path of the first nvcc that knows the target's architectures."""
    needed = max((_SINCE[each] for each in target.architectures), key=_numbers)
    releases = {nvcc: nvcc_version(nvcc) for nvcc in nvcc_paths()}
    for nvcc, release in releases.items():
        if _numbers(release) >= _numbers(needed):
            return nvcc
    found = " and ".join(f"{nvcc} is of CUDA {release}" for nvcc, release in releases.items())
    raise ToolchainError(
        f"{found}, and {target.name} needs {needed} or later; {_INSTALL}, or leave an architecture out"
    )


def compile_fatbin(source: str, target: CudaTarget) -> bytes:
    """Compile CUDA C++ to a fatbin: machine code for each of the target's architectures, and PTX of the last if not specific.

    The same source gives the same bytes, wherever and whenever it is compiled. Functions that
    spill registers are compiled again for one block a multiprocessor, with all its registers.
    """
    nvcc = check_nvcc(target)
    codes = {each.removeprefix("sm_"): each for each in target.features}
    if not target.specific:
        last = target.architectures[-1]
        codes[str(last)] = f"[sm_{last},compute_{last}]"
    generate = [f"-gencode=arch=compute_{each},code={code}" for each, code in codes.items()]
    with tempfile.TemporaryDirectory(prefix="tvmconv-") as folder:
        work = Path(folder)

        def compiled(text: str) -> set[str]:
            """Compile; return the names of functions that spill registers."""
            (work / "kernel.cu").write_text(text)
            # Names relative to the folder: its own name must not reach the compiler.
            report = _run((nvcc, *_FLAGS, *generate, "-o", "kernel.fatbin", "kernel.cu"), work).stderr
            return set(_SPILLS.findall(report))

        # ptxas spills a few registers so that more threads fit a multiprocessor: 64 registers and 12 bytes instead of 83.
        if spilling := compiled(source):
            compiled(_for_one_block(source, spilling))
        return (work / "kernel.fatbin").read_bytes()


def _for_one_block(source: str, functions: set[str]) -> str:
    """Return the source with launch bounds by which ptxas may take all registers for one block of these functions.

    Other functions would get more, too, 80 where they need 48, and fewer of their blocks would fit a multiprocessor.
    """
    names = "|".join(sorted(functions))
    return re.sub(rf"__launch_bounds__\((\d+)\) ({names})\(", r"__launch_bounds__(\1, 1) \2(", source)


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))


def _run(command: tuple[str, ...], folder: Path | None) -> subprocess.CompletedProcess[str]:
    try:
        result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ToolchainError(f"{command[0]} cannot be run: {error.strerror}; {_INSTALL}") from error
    if result.returncode:
        raise ToolchainError(
            f"nvcc failed ({' '.join(command)}), with:\n{(result.stderr or result.stdout).strip()}\n"
            "it also needs the GNU C++ compiler (Debian, Ubuntu: apt install g++)"
        )
    return result
