"""The kernel that multiplies by wgmma: `lowering/cuda/native/wgmma.cuh` with a problem's constants, and how it is launched."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import tvm
from tvm.s_tir import SBlock
from tvm_ffi.structural import structural_map

from ...algorithms.cuda.annotations import WGMMA_STAGES, WGMMA_TILE
from ...algorithms.cuda.blocks import MULTIPROCESSORS
from ...algorithms.cuda.wgmma_packing import Packing, depth_of
from ...algorithms.cuda.wgmma_phases import Phases, phases_of
from ...algorithms.cuda.wgmma_tiles import PLANE_PIXELS, WgmmaTile, packing_of, wgmma_tiles
from ...dtypes import DTYPE_BYTES
from ...problem import Problem
from ...targets.cuda import CudaTarget
from . import NATIVE
from .epilogue_steps import finish, steps_header
from .packing import pack_arrays
from .source import Argument, CudaSource, Launch, TensorMap

_ELEMENTS = {"f16": "__half", "bf16": "__nv_bfloat16"}
# Vectors by their number of elements.
_VECTORS = {1: "unsigned short", 2: "unsigned", 4: "uint2", 8: "uint4"}
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
// Outputs that sum equally many taps; the first one's data, where its first tap is in the filter, and its place.
struct Phase {
  int taps_d, taps_h, taps_w, data_d, data_h, data_w, first_tap, out_d, out_h, out_w;
};
struct tvmconv_output_maps {
  tvmconv_tensor_map phases[kPhases];
};
"""


def scheduled_tile(mod: tvm.IRModule, problem: Problem, target: CudaTarget) -> WgmmaTile | None:
    """Return the tile that a schedule of wgmma's space has chosen; None if it is of another space."""
    found: dict[str, int] = {}

    def visit(block: SBlock) -> SBlock:
        found.update(
            {str(key): int(value) for key, value in block.annotations.items() if str(key) in (WGMMA_TILE, WGMMA_STAGES)}
        )
        return block

    structural_map(mod["main"].body, (SBlock, visit))
    if not found:
        return None
    return replace(wgmma_tiles(problem, target)[found[WGMMA_TILE]], stages=found[WGMMA_STAGES])


def wgmma_source(problem: Problem, tile: WgmmaTile, target: CudaTarget) -> CudaSource:
    """Return the CUDA C++ of a convolution by tiles, and of the copies that it reads."""
    packing = packing_of(problem, target)
    flat, copies = packing.problem, pack_arrays(packing)
    phases = phases_of(flat)
    parts = [
        (NATIVE / "hopper.cuh").read_text(),
        copies.source,
        _constants(packing, tile, phases),
        _phases(phases),
        _original(problem, flat),
        _multiply(tile.columns, problem.dtype, packing.planes, packing.filter_by_depth),
        steps_header(problem),
        finish(problem),
        (NATIVE / "wgmma.cuh").read_text(),
    ]
    data = _data_map(packing, tile, phases, copies.data)
    channels, box = (packing.outputs, packing.filter_channels), (tile.columns_together, tile.span)
    if packing.filter_by_depth:
        channels, box = (packing.filter_channels, packing.outputs), (tile.span, tile.columns)
    weights = TensorMap(
        copies.filter.name,
        (*channels, prod(flat.kernel)),
        (*box, tile.together),
        (1, 1, 1),
        offset=copies.filter.offset,
    )
    output = _output_maps(flat, tile, phases) if tile.store_vector(flat) is None else Argument("output")
    # The kernel does not read operands that the problem lacks.
    operands = [Argument(name if name in problem.operands else "output") for name in _OPERANDS]
    blocks = min(tile.tiles(flat), MULTIPROCESSORS[90])
    launch = Launch(
        "tvmconv_kernel", (blocks, 1, 1), (_THREADS, 1, 1), tile.shared_bytes, (data, weights, *operands, output)
    )
    return CudaSource("\n".join(parts), (*copies.launches, launch), copies.workspace_bytes)


def _data_map(packing: Packing, tile: WgmmaTile, phases: Phases, data: Argument) -> TensorMap:
    """Return the map of data, by which a box of output pixels is read, or pixels of a row."""
    flat, (n, d, h, w) = packing.problem, tile.box
    pixels = tuple(reversed(flat.in_spatial))
    if packing.planes:
        extents = (*pixels, flat.in_channels, flat.batch)
        return TensorMap(data.name, extents, (PLANE_PIXELS, 1, 1, tile.span, 1), (1,) * 5, packing.distances)
    steps = (1, *reversed(phases.strides), 1)
    # Extents that a box spans; along each, copies take one element a step.
    spans = (tile.span, w + tile.halo[1], h + tile.halo[0], d, n)
    box = tuple(b * step for b, step in zip(spans, steps, strict=True))
    return TensorMap(data.name, (flat.in_channels, *pixels, flat.batch), box, steps, packing.distances, data.offset)


def _output_maps(flat: Problem, tile: WgmmaTile, phases: Phases) -> tuple[TensorMap, ...]:
    """Return the maps of the output, one for each phase."""
    n, d, h, w = tile.box
    # From an output pixel to the next along each axis, and to the next image.
    apart = [flat.out_channels * prod(flat.out_spatial[axis + 1 :]) for axis in range(3)]
    image = flat.out_channels * prod(flat.out_spatial)
    return tuple(
        TensorMap(
            "output",
            (flat.out_channels, *reversed(phase.outputs), flat.batch),
            (tile.columns_together, w, h, d, n),
            (1, 1, 1, 1, 1),
            (*reversed([step * each for step, each in zip(phases.steps, apart, strict=True)]), image),
            DTYPE_BYTES[flat.dtype] * sum(first * each for first, each in zip(phase.first, apart, strict=True)),
        )
        for phase in phases.phases
    )


def _constants(packing: Packing, tile: WgmmaTile, phases: Phases) -> str:
    flat = packing.problem
    vector = tile.store_vector(flat)

    def axes(name: str, values: tuple[int, ...]) -> dict[str, int]:
        return {f"k{name}{axis}": value for axis, value in zip("DHW", values, strict=True)}

    numbers: dict[str, Any] = {
        "kRows": tile.rows,
        "kColumns": tile.columns,
        "kSpan": tile.span,
        "kTogether": tile.together,
        "kStages": tile.stages,
        "kDataStages": tile.data_stages,
        "kDataRows": tile.data_rows,
        "kBatch": flat.batch,
        "kDepth": depth_of(flat, tile.columns),
        "kGroupChannels": flat.in_channels // flat.groups,
        "kGroupOutputs": flat.out_channels // flat.groups,
        "kOutputs": flat.out_channels,
        "kBoxN": tile.box[0],
        **axes("Box", tile.box[1:]),
        "kHaloH": tile.halo[0],
        "kHaloW": tile.halo[1],
        **axes("Out", flat.out_spatial),
        "kPhases": len(phases.phases),
        **axes("Phase", phases.outputs),
        **axes("Step", phases.steps),
        **axes("Stride", phases.strides),
        **axes("Dilation", phases.dilations),
        **axes("TapStep", phases.tap_steps),
    }
    facts = {f"k{name.capitalize()}": name in flat.operands for name in _OPERANDS}
    facts |= {
        "kHalo": tile.has_halo,
        "kAlternate": tile.alternate,
        "kFilterByDepth": packing.filter_by_depth,
        "kOutputsWithoutTaps": not all(prod(p.taps) for p in phases.phases),
        "kPlanes": flat.data_format == "NCX",
        "kDataPlanes": packing.planes,
    }
    lines = [f"constexpr int {name} = {value};" for name, value in numbers.items()]
    lines += [f"constexpr bool {name} = {str(fact).lower()};" for name, fact in facts.items()]
    lines += [f"using Element = {_ELEMENTS[flat.dtype]};", f"using Vector = {_VECTORS[vector or 1]};", _TYPES]
    return "\n".join(["", *lines, f"using Output = {'Element *' if vector else 'tvmconv_output_maps'};", ""])


def _phases(phases: Phases) -> str:
    """Return the function that selects a phase by its number, among constants: a table would be read from memory."""
    numbers = [(*each.taps, *each.offset, each.first_tap, *each.first) for each in phases.phases]
    first, *others = (f"Phase{{{', '.join(map(str, each))}}}" for each in numbers)
    choice = "".join(f"number == {i} ? {each} : " for i, each in enumerate(others, 1))
    return f"\n__device__ __forceinline__ Phase tvmconv_phase(int number) {{ return {choice}{first}; }}\n"


def _original(problem: Problem, flat: Problem) -> str:
    """Return the map from a flattened problem's output channels to the problem's, whose operands are read."""
    each = flat.out_channels // problem.out_channels
    expression = "o" if each == 1 else f"o / {each}" if problem.data_format == "NCX" else f"o % {problem.out_channels}"
    return f"__device__ __forceinline__ int tvmconv_original(int o) {{ return {expression}; }}\n"


def _multiply(columns: int, dtype: str, planes: bool, by_depth: bool) -> str:
    """Return the function that adds to 64 x `columns` sums (or, without `adds`, sets them to) the products of 16 of depth.

    The faster index of the left matrix is depth, or pixels where data are planes; that of the right one, as of the filter,
    depth or columns.
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
      "wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{dtype}.{dtype} {{{registers}}}, %{count}, %{count + 1}, adds, 1, 1, {int(planes)}, {int(not by_depth)};\\n\\t"
      "}}"
      : {outputs}
      : "l"(left), "l"(right), "r"(adds));
}}
"""
