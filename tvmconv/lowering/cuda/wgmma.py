"""The kernel that multiplies by wgmma: `lowering/native/wgmma.cuh` with a problem's constants, and how it is launched."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import tvm
from tvm.s_tir import SBlock
from tvm_ffi.structural import structural_map

from ...algorithms.cuda.annotations import WGMMA_COLUMNS, WGMMA_ROWS, WGMMA_STAGES
from ...algorithms.cuda.blocks import MULTIPROCESSORS
from ...algorithms.cuda.wgmma_tiles import SPAN, WgmmaTile, as_3d, wgmma_tiles
from ...problem import Problem
from ...targets.cuda import CudaTarget
from ..cpu.linker import NATIVE
from .epilogue_steps import finish, steps_header
from .source import Argument, CudaSource, Launch, TensorMap

_ELEMENTS = {"f16": "__half", "bf16": "__nv_bfloat16"}
_THREADS = 384
_OPERANDS = ("bias", "scale", "slope", "residual")
_TYPES = """\
struct alignas(4) Pair {
  Element x, y;
};
struct tvmconv_operands {
  const Element *bias;
  const float *scale, *slope;
  const Element *residual;
};
struct Channel {
  float bias, scale, slope;
};
"""


def scheduled_tile(mod: tvm.IRModule, problem: Problem, target: CudaTarget) -> WgmmaTile | None:
    """Return the tile that a schedule of wgmma's space has chosen; None if it is of another space."""
    found: dict[str, int] = {}

    def visit(block: SBlock) -> SBlock:
        found.update(
            {
                str(key): int(value)
                for key, value in block.annotations.items()
                if str(key) in (WGMMA_ROWS, WGMMA_COLUMNS, WGMMA_STAGES)
            }
        )
        return block

    structural_map(mod["main"].body, (SBlock, visit))
    if not found:
        return None
    sizes = {(tile.rows, tile.columns): tile for tile in wgmma_tiles(problem, target)}
    return replace(sizes[found[WGMMA_ROWS], found[WGMMA_COLUMNS]], stages=found[WGMMA_STAGES])


def wgmma_source(problem: Problem, tile: WgmmaTile) -> CudaSource:
    """Return the CUDA C++ of a convolution by tiles."""
    flat = as_3d(problem)
    parts = [
        (NATIVE / "hopper.cuh").read_text(),
        _constants(flat, tile),
        _multiply(tile.columns, problem.dtype),
        steps_header(problem),
        finish(problem),
        (NATIVE / "wgmma.cuh").read_text(),
    ]
    n, d, h, w = tile.box
    steps = (1, *reversed(flat.strides), 1)
    data = TensorMap(
        "data",
        (flat.in_channels, *reversed(flat.in_spatial), flat.batch),
        # What is traversed, of which copies take every so many.
        tuple(b * step for b, step in zip((SPAN, w, h, d, n), steps, strict=True)),
        steps,
    )
    weights = TensorMap("filter", (flat.out_channels, flat.in_channels, prod(flat.kernel)), (SPAN, SPAN, 1), (1, 1, 1))
    output = TensorMap(
        "output", (flat.out_channels, *reversed(flat.out_spatial), flat.batch), (SPAN, w, h, d, n), (1, 1, 1, 1, 1)
    )
    # Of an operand that the problem has not, the kernel reads nothing.
    operands = [Argument(name if name in problem.operands else "output") for name in _OPERANDS]
    blocks = min(tile.tiles(flat), MULTIPROCESSORS[90])
    launch = Launch(
        "tvmconv_kernel", (blocks, 1, 1), (_THREADS, 1, 1), tile.shared_bytes, (data, weights, *operands, output)
    )
    return CudaSource("\n".join(parts), (launch,), 0)


def _constants(flat: Problem, tile: WgmmaTile) -> str:
    def axes(name: str, values: tuple[int, ...]) -> dict[str, int]:
        return {f"k{name}{axis}": value for axis, value in zip("DHW", values, strict=True)}

    numbers: dict[str, Any] = {
        "kRows": tile.rows,
        "kColumns": tile.columns,
        "kStages": tile.stages,
        "kBatch": flat.batch,
        "kChannels": flat.in_channels,
        "kOutputs": flat.out_channels,
        "kBoxN": tile.box[0],
        **axes("Box", tile.box[1:]),
        **axes("Out", flat.out_spatial),
        **axes("Kernel", flat.kernel),
        **axes("Stride", flat.strides),
        **axes("Dilation", flat.dilations),
        **axes("Pad", flat.pads_begin),
    }
    lines = [f"constexpr int {name} = {value};" for name, value in numbers.items()]
    lines += [f"constexpr bool k{name.capitalize()} = {str(name in flat.operands).lower()};" for name in _OPERANDS]
    return "\n".join(["", *lines, f"using Element = {_ELEMENTS[flat.dtype]};", _TYPES])


def _multiply(columns: int, dtype: str) -> str:
    """Return the function that adds to 64 x `columns` sums (or, without `adds`, sets them to) the products of 16 of depth.

    The left matrix lies with depth as the faster index; the right one, as the filter does, with columns.
    """
    count = columns // 2
    registers = ", ".join(f"%{i}" for i in range(count))
    outputs = ", ".join(f'"+f"(sums[{i}])' for i in range(count))
    return f"""
__device__ __forceinline__ void tvmconv_multiply(float *sums, uint64_t left, uint64_t right, int adds) {{
  asm volatile(
      "{{\\n\\t"
      ".reg .pred adds;\\n\\t"
      "setp.ne.b32 adds, %{count + 2}, 0;\\n\\t"
      "wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{dtype}.{dtype} {{{registers}}}, %{count}, %{count + 1}, adds, 1, 1, 0, 1;\\n\\t"
      "}}"
      : {outputs}
      : "l"(left), "l"(right), "r"(adds));
}}
"""
