"""Link a CUDA kernel into a self-contained shared library: its machine code as bytes, and the launcher.

The library holds a fatbin, a table of launches and `lowering/cuda/native/cuda_launcher.c`, and needs only tvm-ffi and libc; the
driver is looked for when the kernel is first called. The same kernel gives the same bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from ...dtypes import DTYPE_BYTES
from ...platforms.linux import PLATFORM as LINUX
from ...problem import Problem
from ...support.files import whole_file
from ...targets.cuda import CudaTarget
from ..cpu.linker import compile_runtime, link_objects
from . import NATIVE
from .nvcc import compile_fatbin
from .source import WORKSPACE, Argument, CudaSource, Launch, TensorMap

# Codes of DLDataType.
_TYPE_CODES = {"f32": 2, "f16": 2, "bf16": 4}
# Numbers of CUtensorMapDataType.
_MAP_TYPES = {"f32": 7, "f16": 6, "bf16": 9}
# Numbers of CUtensorMapSwizzle, by the bytes of a box's row.
_SWIZZLES = {32: 1, 64: 2, 128: 3}
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
    """Compile a kernel for the target's architectures and write its shared library; an existing file is replaced whole."""
    fatbin = compile_fatbin(kernel.source, target)
    with whole_file(Path(path), mapped=True) as library:
        work = library.parent
        (work / "kernel.fatbin").write_bytes(fatbin)
        (work / "table.c").write_text(_table(kernel, problem, target))
        (work / "launcher.o").write_bytes(_launcher_object())
        arguments = (*LINUX.compile_flags, f"-I{NATIVE}", "table.c", "launcher.o", "-ldl", "-lpthread")
        link_objects(work, arguments, library)


@cache
def _launcher_object() -> bytes:
    return compile_runtime(NATIVE / "cuda_launcher.c", f"-I{NATIVE}")


def _table(kernel: CudaSource, problem: Problem, target: CudaTarget) -> str:
    """Return the C source of the tables that cuda_launcher.h declares."""
    arrays = {**problem.operands, "output": (problem.output_shape, problem.dtype)}
    rows = [
        f'{{"{name}", {_TYPE_CODES[dtype]}, {8 * DTYPE_BYTES[dtype]}, {len(shape)}, {_braces(shape)}}}'
        for name, (shape, dtype) in arrays.items()
    ]
    launches = [_launch(launch, list(arrays), problem.dtype) for launch in kernel.launches]
    most_maps = max((sum(map(len, map(_maps, launch.arguments))) for launch in kernel.launches), default=0)
    return "\n".join(
        [
            '#include "cuda_launcher.h"',
            f"const int32_t tvmconv_num_arrays = {len(rows)}, tvmconv_num_launches = {len(launches)};",
            f'_Static_assert({len(launches)} <= TVMCONV_MAX_LAUNCHES, "too many launches");',
            f'_Static_assert({most_maps} <= TVMCONV_MAX_MAPS, "too many maps");',
            f"const uint64_t tvmconv_workspace_bytes = {kernel.workspace_bytes};",
            f'const char tvmconv_architectures[] = "{", ".join(target.features)} {"alone" if target.specific else "and later"}";',
            f"const struct tvmconv_array tvmconv_arrays[] = {_braces(rows)};",
            f"const struct tvmconv_launch tvmconv_launches[] = {_braces(launches)};",
            _FATBIN,
        ]
    )


def _launch(launch: Launch, arrays: list[str], dtype: str) -> str:
    def number(name: str) -> int:
        return -1 if name == WORKSPACE else arrays.index(name)

    def argument(each: Argument | TensorMap | tuple[TensorMap, ...]) -> str:
        if maps := _maps(each):
            described = f"(const struct tvmconv_tensor_map[]){_braces(_tensor_map(each, dtype) for each in maps)}"
            return _braces((number(maps[0].name), 0, len(maps), described))
        assert isinstance(each, Argument)
        return _braces((number(each.name), each.offset, 0, 0))

    arguments = _braces(map(argument, launch.arguments))
    grid, block = _braces(launch.grid), _braces(launch.block)
    return f'{{"{launch.function}", {grid}, {block}, {launch.shared_bytes}, {len(launch.arguments)}, {arguments}}}'


def _maps(each: Argument | TensorMap | tuple[TensorMap, ...]) -> tuple[TensorMap, ...]:
    """Return the maps of a parameter, none if it is a pointer."""
    return each if isinstance(each, tuple) else (each,) if isinstance(each, TensorMap) else ()


def _tensor_map(each: TensorMap, dtype: str) -> str:
    """Return a map's description, a C initializer."""
    distances = [DTYPE_BYTES[dtype] * distance for distance in each.element_distances]
    lists = map(_braces, (each.extents, distances, each.box, each.steps))
    swizzle = _SWIZZLES[DTYPE_BYTES[dtype] * each.box[0]]
    return _braces((each.offset, _MAP_TYPES[dtype], swizzle, len(each.extents), *lists))


def _braces(items: Iterable[object]) -> str:
    return "{" + ", ".join(map(str, items)) + "}"
