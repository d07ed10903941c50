"""Link a CUDA kernel into a self-contained shared library: its machine code as bytes, and what launches it.

The library holds a fatbin, a table of launches and `runtime/cuda_launcher.c`, and needs only tvm-ffi and libc; the
driver is looked for when the kernel is first called. The same kernel gives the same bytes.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from .cuda_lowering import WORKSPACE, Argument, CudaSource, Launch
from .cuda_target import CudaTarget
from .linker import COMPILE_FLAGS, RUNTIME, compile_runtime, link_objects
from .nvcc import compile_fatbin
from .problem import DTYPE_BYTES, Problem

# Codes of DLDataType.
_TYPE_CODES = {"f32": 2, "f16": 2, "bf16": 4}
# The assembler includes the bytes as they are; C would take seconds for a megabyte.
_FATBIN = r"""
__asm__(
    ".section .rodata\n"
    ".balign 64\n"
    ".globl tvmconv_fatbin\n"
    ".hidden tvmconv_fatbin\n"
    "tvmconv_fatbin:\n"
    ".incbin \"kernel.fatbin\"\n"
    ".previous\n");
"""


def link_cuda(kernel: CudaSource, problem: Problem, target: CudaTarget, path: str | os.PathLike[str]) -> None:
    """Compile a kernel for the target's architectures and write its shared library; an existing file is replaced whole.

    Raises
    ------
    ToolchainError
        If there is no nvcc or C compiler, nvcc is too old for an architecture, or one of them fails.
    """
    fatbin = compile_fatbin(kernel.source, target)
    path = Path(path)
    with tempfile.TemporaryDirectory(prefix=".link-", dir=path.parent) as folder:
        work = Path(folder)
        (work / "kernel.fatbin").write_bytes(fatbin)
        (work / "table.c").write_text(_table(kernel, problem, target))
        (work / "launcher.o").write_bytes(_launcher_object())
        arguments = (*COMPILE_FLAGS, f"-I{RUNTIME}", "table.c", "launcher.o", "-ldl", "-lpthread")
        link_objects(work, arguments, path)


@cache
def _launcher_object() -> bytes:
    return compile_runtime("cuda_launcher.c")


def _table(kernel: CudaSource, problem: Problem, target: CudaTarget) -> str:
    """Return the C source of what cuda_launcher.h declares."""
    shapes = {"data": problem.data_shape, "filter": problem.filter_shape, "bias": problem.bias_shape}
    arrays = {name: shapes[name] for name in ("data", "filter", *(["bias"] if problem.bias else []))}
    arrays["output"] = problem.output_shape
    kind = f"{_TYPE_CODES[problem.dtype]}, {8 * DTYPE_BYTES[problem.dtype]}"
    rows = [f'{{"{name}", {kind}, {len(shape)}, {_braces(shape)}}}' for name, shape in arrays.items()]
    launches = [_launch(launch, list(arrays)) for launch in kernel.launches]
    return "\n".join(
        [
            '#include "cuda_launcher.h"',
            f"const int32_t tvmconv_num_arrays = {len(rows)}, tvmconv_num_launches = {len(launches)};",
            f'_Static_assert({len(launches)} <= TVMCONV_MAX_LAUNCHES, "too many launches");',
            f"const uint64_t tvmconv_workspace_bytes = {kernel.workspace_bytes};",
            f'const char tvmconv_architectures[] = "{", ".join(target.features)}";',
            f"const struct tvmconv_array tvmconv_arrays[] = {_braces(rows)};",
            f"const struct tvmconv_launch tvmconv_launches[] = {_braces(launches)};",
            _FATBIN,
        ]
    )


def _launch(launch: Launch, arrays: list[str]) -> str:
    def argument(each: Argument) -> str:
        return _braces((-1 if each.name == WORKSPACE else arrays.index(each.name), each.offset))

    arguments = _braces(map(argument, launch.arguments))
    grid, block = _braces(launch.grid), _braces(launch.block)
    return f'{{"{launch.function}", {grid}, {block}, {launch.shared_bytes}, {len(launch.arguments)}, {arguments}}}'


def _braces(items: Iterable[object]) -> str:
    return "{" + ", ".join(map(str, items)) + "}"
