"""Runs the CUDA C++ of a kernel on the CPU, to compare it with the reference where there is no GPU.

The device functions are compiled as C++ against `emulator.h`, which says what is checked on the way, into a program
that launches them over arrays with inaccessible memory around them.
"""

from __future__ import annotations

import re
import signal
import subprocess
import tempfile
from functools import cache
from math import prod
from pathlib import Path

import numpy as np
import ptx

import tvmconv
from tvmconv import fills
from tvmconv.dtypes import DTYPE_BYTES
from tvmconv.lowering.cuda.source import CudaSource, TensorMap
from tvmconv.problem import Problem

HEADERS = Path(__file__).parent
NATIVE = Path(tvmconv.__file__).parent / "lowering/cuda/native"
INSTRUCTIONS, STEPS = NATIVE / "instructions.cuh", NATIVE / "steps.cuh"
# Alignment: a GPU faults on a vector that is not aligned to its size. Bounds: of registers and shared memory.
# Pattern: variables begin with numbers that no sum hides.
FLAGS = ["-std=c++17", "-Og", "-w", "-mf16c", "-ffp-contract=off", "-fno-strict-aliasing"]
FLAGS += ["-fsanitize=alignment,bounds", "-fno-sanitize-recover=all", "-ftrivial-auto-var-init=pattern"]
# What every program begins with: compiled once, as it takes longer than most kernels.
COMMON = "".join(f'#include "emulator{part}.h"\n' for part in ("", "_arrays", "_instructions"))
FIRST_FUNCTION = 'extern "C" __global__'
SECONDS = 300
_OF_HOPPER = "wgmma.mma_async"


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
    given = arrays.given()
    dtype = fills.numpy_dtype(problem.dtype)
    sizes = {name: array.nbytes for name, array in given.items()}
    sizes |= {"output": prod(problem.output_shape) * dtype.itemsize, "workspace": source.workspace_bytes}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        (path / "kernel.cpp").write_text(_program(source, problem, sizes))
        for name, array in given.items():
            (path / name).write_bytes(np.ascontiguousarray(array).tobytes())
        _call(["g++", *FLAGS, f"-I{HEADERS}", f"-I{_compiled_headers().name}", "kernel.cpp", "-o", "kernel"], path)
        outputs = []
        for order in ("ascending", "descending"):
            _call(["./kernel", order], path)
            outputs.append(np.fromfile(path / "output", np.uint8))
    if not np.array_equal(*outputs):
        raise EmulationError("the output depends on the order of threads: a barrier is missing")
    return outputs[0].view(dtype).reshape(problem.output_shape)


@cache
def _compiled_headers() -> tempfile.TemporaryDirectory[str]:
    """Return a folder with ``common.h``, precompiled; it is there as long as what is returned."""
    folder = tempfile.TemporaryDirectory()
    Path(folder.name, "common.h").write_text(COMMON)
    _call(["g++", *FLAGS, f"-I{HEADERS}", "-x", "c++-header", "common.h", "-o", "common.h.gch"], Path(folder.name))
    return folder


def _call(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS)
    if done.returncode == -signal.SIGSEGV:
        raise EmulationError("the kernel reads or writes outside of its arrays")
    if done.returncode:
        raise EmulationError(f"{command[0]} ended with {done.returncode}:\n{done.stderr[-4000:]}")


def _without_ptx(source: str) -> str:
    """Return our own functions for CUDA but those of inline PTX, of which the headers here have twins."""
    return "\n\n".join(each for each in source.split("\n\n") if "asm" not in each and "#include" not in each)


def _device_code(source: str) -> str:
    """Return the C++ of the device functions."""
    if _OF_HOPPER in source:  # it is ours as a whole
        functions = '#include "emulator_hopper.h"\n' + re.sub("#include.*", "", ptx.translated(source))
    else:
        # Before the first function are headers for CUDA, TVM's and ours, in place of which there is emulator.h.
        start = source.find(FIRST_FUNCTION)
        functions = _without_ptx(INSTRUCTIONS.read_text()) + "\n" + _without_ptx(STEPS.read_text())
        functions += "\n" + (source[start:] if start >= 0 else "")
    return re.sub(r"extern __shared__[^;]*?(\w+)\[\];", r"unsigned char* const \1 = dynamic_shared;", functions)


def _program(source: CudaSource, problem: Problem, sizes: dict[str, int]) -> str:
    """Return the C++ of the device functions and of a `main` that launches them; `sizes` of arrays are in bytes."""
    lines = ['#include "common.h"', _device_code(source.source)]
    lines += [f"static Array {name}({size}ul);" for name, size in sizes.items()]
    lines += ["int main(int, char** arguments) {", "  descending = arguments[1][0] == 'd';"]
    lines += [f'  {name}.place("{name}", descending);' for name in sizes]
    for number, launch in enumerate(source.launches):
        passed = []
        for index, each in enumerate(launch.arguments):
            if maps := each if isinstance(each, tuple) else (each,) if isinstance(each, TensorMap) else ():
                passed.append(f"maps{number}_{index}")
                described = ", ".join(f"{{{_map(one, DTYPE_BYTES[problem.dtype])}}}" for one in maps)
                lines.append(f"  static Maps {passed[-1]}{{{{{described}}}}};")
            else:
                passed.append(f"{each.name}.at({each.offset})")
        grid, block = (", ".join(map(str, each)) for each in (launch.grid, launch.block))
        call = f"[] {{ {launch.function}({', '.join(passed)}); }}"
        lines.append(f"  launch({call}, {{{grid}}}, {{{block}}}, {launch.shared_bytes});")
    lines += [f'  {name}.check("{name}");' for name in sizes]
    return "\n".join([*lines, '  output.save("output");', "}", ""])


def _map(each: TensorMap, element_bytes: int) -> str:
    lists = (each.extents, each.element_distances, each.box, each.steps)
    return ", ".join(
        [f"{each.name}.at({each.offset})", str(element_bytes), *("{" + ", ".join(map(str, one)) + "}" for one in lists)]
    )
