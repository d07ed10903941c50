"""Runs the CUDA C++ of a kernel on the CPU, to compare it with the reference where there is no GPU.

The device functions are compiled as C++ against `emulator.h`, which says what is checked on the way, into a program
that launches them over arrays with inaccessible memory around them.
"""

from __future__ import annotations

import re
import signal
import subprocess
import tempfile
from math import prod
from pathlib import Path

import numpy as np

import tvmconv
from tvmconv import fills
from tvmconv.cuda_lowering import CudaSource
from tvmconv.problem import Problem

HEADERS = Path(__file__).parent
INSTRUCTIONS = Path(tvmconv.__file__).parent / "runtime/instructions.cuh"
# Alignment: a GPU faults on a vector that is not aligned to its size. Bounds: of registers and shared memory.
# Pattern: variables begin with numbers that no sum hides.
FLAGS = ["-std=c++17", "-Og", "-w", "-mf16c", "-ffp-contract=off", "-fno-strict-aliasing"]
FLAGS += ["-fsanitize=alignment,bounds", "-fno-sanitize-recover=all", "-ftrivial-auto-var-init=pattern"]
FIRST_FUNCTION = 'extern "C" __global__'
SECONDS = 300


class EmulationError(AssertionError):
    """What a kernel did that a GPU would fault on, or not always do the same way."""


def run(source: CudaSource, problem: Problem, arrays: fills.Arrays) -> np.ndarray:
    """Return a kernel's output for `arrays`; where nothing is written it is NaN.

    Raises
    ------
    EmulationError
        If it reads or writes outside of its arrays, its threads race or disagree about a barrier, or a vector is
        not aligned.
    """
    given = {name: array for name, array in arrays._asdict().items() if array is not None}
    dtype = fills.numpy_dtype(problem.dtype)
    sizes = {name: array.nbytes for name, array in given.items()}
    sizes |= {"output": prod(problem.output_shape) * dtype.itemsize, "workspace": source.workspace_bytes}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        (path / "kernel.cpp").write_text(_program(source, sizes))
        for name, array in given.items():
            (path / name).write_bytes(np.ascontiguousarray(array).tobytes())
        _call(["g++", *FLAGS, f"-I{HEADERS}", "kernel.cpp", "-o", "kernel"], path)
        outputs = []
        for order in ("ascending", "descending"):
            _call(["./kernel", order], path)
            outputs.append(np.fromfile(path / "output", np.uint8))
    if not np.array_equal(*outputs):
        raise EmulationError("the output depends on the order of threads: a barrier is missing")
    return outputs[0].view(dtype).reshape(problem.output_shape)


def _call(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS)
    if done.returncode == -signal.SIGSEGV:
        raise EmulationError("the kernel reads or writes outside of its arrays")
    if done.returncode:
        raise EmulationError(f"{command[0]} ended with {done.returncode}:\n{done.stderr[-4000:]}")


def _instructions() -> str:
    """Return our own functions for CUDA but those of inline PTX, which emulator_instructions.h has instead."""
    paragraphs = INSTRUCTIONS.read_text().split("\n\n")
    return "\n\n".join(each for each in paragraphs if "asm" not in each and "#include" not in each)


def _program(source: CudaSource, sizes: dict[str, int]) -> str:
    """Return the C++ of the device functions and of a `main` that launches them; `sizes` of arrays are in bytes."""
    # Before the first function are headers for CUDA, TVM's and ours, in place of which there is emulator.h.
    start = source.source.find(FIRST_FUNCTION)
    functions = source.source[start:] if start >= 0 else ""
    functions = re.sub(r"extern __shared__[^;]*?(\w+)\[\];", r"unsigned char* const \1 = dynamic_shared;", functions)
    lines = [f'#include "emulator{part}.h"' for part in ("", "_arrays", "_instructions")]
    lines += [_instructions(), functions]
    lines += [f"static Array {name}({size}ul);" for name, size in sizes.items()]
    lines += ["int main(int, char** arguments) {", "  bool descending = arguments[1][0] == 'd';"]
    lines += [f'  {name}.place("{name}", descending);' for name in sizes]
    for launch in source.launches:
        pointers = ", ".join(f"{argument.name}.at({argument.offset})" for argument in launch.arguments)
        grid, block = (", ".join(map(str, each)) for each in (launch.grid, launch.block))
        call = f"[] {{ {launch.function}({pointers}); }}"
        lines.append(f"  launch({call}, {{{grid}}}, {{{block}}}, {launch.shared_bytes}, descending);")
    lines += [f'  {name}.check("{name}");' for name in sizes]
    return "\n".join([*lines, '  output.save("output");', "}", ""])
