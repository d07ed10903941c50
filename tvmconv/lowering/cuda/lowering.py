"""Lower a scheduled function to CUDA C++ and the launches that run it, without nvcc, a driver or a GPU.

TVM's passes for GPUs, less those for other devices, with the kernel's own arguments put in place as on CPUs
(`bind_arguments`). What TVM would turn into calls of its runtime becomes a table: the functions to launch, in
order, each with a constant grid and block, since shapes are fixed, and pointers alone as parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Call, CallingConv
from tvm_ffi import dtype as DataType

from ...algorithms.definition import Definition
from ...algorithms.types import CUDA_DTYPES
from ...targets.cuda import CudaTarget
from ..common.arguments import bind_arguments
from . import NATIVE
from .epilogue_steps import call_steps, steps_header
from .pipelining import fragments, pipeline_loops
from .source import WORKSPACE, WORKSPACE_ALIGNMENT, Argument, CudaSource, Launch
from .wgmma import scheduled_tile, wgmma_source

FUNCTION = "tvmconv"
_COMPILE = "tvm_callback_cuda_compile"
INSTRUCTIONS = NATIVE / "instructions.cuh"
INSTRUCTIONS_USED = "tvmconv_cop"  # asynchronous copies: tensor cores get their operands by no other way
# CUDA C++ Programming Guide, Technical Specifications per Compute Capability.
_GRID_LIMITS = (2**31 - 1, 65535, 65535)
_DYNAMIC_SHARED = "tirx.use_dyn_shared_memory"


def to_source(mod: tvm.IRModule, definition: Definition, target: CudaTarget) -> CudaSource:
    """Return the CUDA C++ of a scheduled module.

    Raises
    ------
    ValueError
        If the schedule leaves work outside of device functions, or a grid is larger than a GPU takes.
    """
    if definition.problem.is_empty:
        return CudaSource("", (), 0)
    if (tile := scheduled_tile(mod, definition.problem, target)) is not None:
        return wgmma_source(definition.problem, tile, target)
    lowered = lower_cuda(mod, definition, target)
    device = {name: func for name, func in lowered.functions.items() if _is_device_function(func)}
    (host,) = (func for name, func in lowered.functions.items() if name not in device)
    finished = s_tir.pipeline.finalize_device_passes()(tvm.IRModule(device))
    source = steps_header(definition.problem) + _generate(finished, target)
    if INSTRUCTIONS_USED in source:
        source = INSTRUCTIONS.read_text() + source
    table = _LaunchTable(host)
    return CudaSource(source, tuple(table.launches), table.workspace_bytes)


def _generate(device: tvm.IRModule, target: CudaTarget) -> str:
    """Return the CUDA C++ of device functions by TVM's code generator."""
    # With a driver, TVM also compiles the code for this machine's GPU: give it nothing instead.
    compile_as_before = tvm.get_global_func(_COMPILE)
    tvm_ffi.register_global_func(_COMPILE, lambda code: b"", override=True)
    try:
        module = tvm.get_global_func("target.build.cuda")(device, target.tvm())
    finally:
        tvm_ffi.register_global_func(_COMPILE, compile_as_before, override=True)
    return str(module.inspect_source("cuda"))


def _is_device_function(func: tirx.PrimFunc) -> bool:
    return bool(func.attrs.get("calling_conv", 0) == CallingConv.DEVICE_KERNEL_LAUNCH)


def _function_pass(change: Callable[[tirx.PrimFunc], tirx.PrimFunc], name: str) -> tvm.transform.Pass:
    return tirx.transform.prim_func_pass(lambda func, mod, context: change(func), opt_level=0, name=name)


def lower_cuda(mod: tvm.IRModule, definition: Definition, target: CudaTarget) -> tvm.IRModule:
    """Return the device functions of a scheduled module, and the host function that launches them."""
    func = tvm.transform.Sequential(_passes_on_blocks(target))(mod)["main"]
    func = bind_arguments(func, definition, CUDA_DTYPES)
    passes = tvm.transform.Sequential(_passes_on_loops())
    return passes(tvm.IRModule({FUNCTION: func.with_attr("global_symbol", FUNCTION)}))


def _passes_on_blocks(target: CudaTarget) -> list[tvm.transform.Pass]:
    """Return the passes from a scheduled function to loops without blocks."""
    return [
        # The host is only read, never compiled.
        tirx.transform.BindTarget(target.tvm().with_host(tvm.target.Target("c"))),
        s_tir.transform.CanonicalizeLoop(),
        s_tir.transform.LowerCrossThreadReduction(),
        s_tir.transform.LowerInitBlock(),
        s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
        s_tir.transform.ConvertBlocksToOpaque(),
        s_tir.transform.LiftThreadBinding(),
        s_tir.transform.ManifestSharedMemoryLocalStage(),
        s_tir.transform.CompactBufferAllocation(),
        s_tir.transform.LowerAutoCopy(),
        s_tir.transform.UnifyThreadBinding(),
        s_tir.transform.LowerMatchBuffer(),
        s_tir.transform.StmtSimplify(),
        s_tir.transform.InjectPermutedLayout(),
        s_tir.transform.AnnotateIrregularLoop(),
        s_tir.transform.InjectSoftwarePipeline(),
        s_tir.transform.TransformMmaBufferLayout(),
        s_tir.transform.LowerOpaqueBlock(),
    ]


def _passes_on_loops() -> list[tvm.transform.Pass]:
    """Return the passes from loops without blocks to functions of the host and the device."""
    return [
        tirx.transform.FlattenBuffer(),
        tirx.transform.BF16ComputeLegalize(),
        tirx.transform.NarrowDataType(32),
        # So that no condition on outputs' places depends on a vector's lane, which would keep the loop from being vectorized.
        s_tir.transform.StmtSimplify(),
        s_tir.transform.RenormalizeSplitPattern(),
        s_tir.transform.StmtSimplify(),
        s_tir.transform.LoopPartition(),
        tirx.transform.VectorizeLoop(True),
        _function_pass(call_steps, "tvmconv.CallSteps"),
        s_tir.transform.InjectVirtualThread(),
        s_tir.transform.InjectDoubleBuffer(),
        s_tir.transform.HoistIfThenElse(),
        tirx.transform.UnrollLoop(),
        s_tir.transform.RenormalizeSplitPattern(),
        tirx.transform.StmtSimplify(),
        tirx.transform.RemoveNoOp(),
        s_tir.transform.RewriteUnsafeSelect(),
        tirx.transform.VerifyMemory(),
        tirx.transform.AnnotateEntryFunc(),
        s_tir.transform.ThreadSync("shared"),
        s_tir.transform.ThreadSync("shared.dyn"),
        _function_pass(pipeline_loops, "tvmconv.Pipeline"),
        tirx.transform.ConvertSSA(),  # it repeats loops
        _function_pass(fragments, "tvmconv.Fragments"),
        s_tir.transform.InferFragment(),
        s_tir.transform.LowerThreadAllreduce(),
        s_tir.transform.InjectPTXAsyncCopy(),
        s_tir.transform.MergeSharedMemoryAllocations(),
        tirx.transform.SplitHostDevice(),
    ]


class _LaunchTable:
    """The launches of a host function, and its intermediate arrays' places in the workspace."""

    def __init__(self, host: tirx.PrimFunc) -> None:
        self.launches: list[Launch] = []
        self.workspace_bytes = 0
        self._pointers: dict[Any, Argument] = {buffer: Argument(str(buffer.name)) for buffer in host.params}
        self._visit(host.body)

    def _visit(self, statement: Any) -> None:
        if isinstance(statement, tirx.SeqStmt):
            for each in statement.seq:
                self._visit(each)
        elif isinstance(statement, tirx.DeclBuffer):
            self._pointers[statement.buffer] = self._argument(statement.data)
        elif isinstance(statement, tirx.AllocBuffer):
            self._allocate(statement.buffer)
        elif isinstance(statement, tirx.Evaluate) and statement.value.op.name == "tirx.call_ffi_kernel":
            self.launches.append(self._launch(statement.value))
        else:
            raise ValueError(f"the schedule leaves this statement outside device functions: {statement}")

    def _allocate(self, buffer: Any) -> None:
        self._pointers[buffer] = Argument(WORKSPACE, self.workspace_bytes)
        size = prod(int(extent) for extent in buffer.shape) * DataType(buffer.dtype).itemsize
        self.workspace_bytes += -(-size // WORKSPACE_ALIGNMENT) * WORKSPACE_ALIGNMENT

    def _argument(self, pointer: Any) -> Argument:
        """Return the argument that ``buffer.data`` stands for."""
        return self._pointers[pointer.args[0]]

    def _launch(self, call: Call) -> Launch:
        name, *values = call.args
        tags = [str(tag) for tag in call.attrs.launch_params]
        pointers, extents = values[: len(values) - len(tags)], values[len(values) - len(tags) :]
        sizes = {tag: int(extent) for tag, extent in zip(tags, extents, strict=True)}
        grid = _triple("blockIdx", sizes)
        if any(extent > limit for extent, limit in zip(grid, _GRID_LIMITS, strict=True)):
            raise ValueError(f"{name.value} has a grid of {grid}; a GPU takes at most {_GRID_LIMITS}")
        return Launch(
            name.value,
            grid,
            _triple("threadIdx", sizes),
            sizes.get(_DYNAMIC_SHARED, 0),
            tuple(self._argument(pointer) for pointer in pointers),
        )


def _triple(what: str, sizes: dict[str, int]) -> tuple[int, int, int]:
    x, y, z = (sizes.get(f"{what}.{dimension}", 1) for dimension in "xyz")
    return x, y, z
