"""From a scheduled function to one that TVM compiles: the kernel's own arguments put in place, then lowered.

TVM's own pipeline for CPUs, less what these kernels never use (threads of GPUs, software pipelines),
and with one pass more: `bind_arguments`, which gives the function the argument list of a kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm_ffi.structural import structural_map

from .definitions.definition import Definition
from .definitions.types import kernel_dtype
from .padding import skip_padding
from .problem import DTYPE_BYTES, Problem

SYMBOL = "tvmconv_kernel"
PIPELINE = "tvmconv"
TINY_FLOPS = 250_000
TINY_BYTES = 64 * 1024


def lower(mod: tvm.IRModule, definition: Definition) -> tvm.IRModule:
    """Return the scheduled module with kernel arguments and without blocks, ready for `tvm.compile` with PIPELINE."""
    blocks_away = tvm.transform.Sequential(
        [
            s_tir.transform.CanonicalizeLoop(),
            s_tir.transform.LowerInitBlock(),
            s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
            s_tir.transform.ConvertBlocksToOpaque(),
            s_tir.transform.CompactBufferAllocation(),
            s_tir.transform.LowerMatchBuffer(),
            s_tir.transform.StmtSimplify(),
            s_tir.transform.LowerOpaqueBlock(),
        ]
    )
    func = blocks_away(mod)["main"]
    if is_tiny(definition.problem):
        func = func.with_body(structural_map(func.body, (tirx.For, _serial)))
    func = func.with_body(skip_padding(func.body))
    func = bind_arguments(func, definition, kernel_dtype(definition.problem.dtype))
    return tvm.IRModule({SYMBOL: func.with_attr("global_symbol", SYMBOL)})


def is_tiny(problem: Problem) -> bool:
    """Whether other threads would cost more than they give.

    A parallel loop costs half a microsecond when its threads are awake, and milliseconds when one waits for a
    processor; a problem of this size takes 3 microseconds (two cores of a Zen 4: equal at 225 792 operations).
    """
    return problem.flops < TINY_FLOPS and problem.nbytes < TINY_BYTES


def _serial(loop: tirx.For) -> tirx.For:
    if loop.kind != tirx.ForKind.PARALLEL:
        return loop
    return tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.SERIAL, loop.body)


def workspace_bytes(module: tvm.IRModule) -> int:
    """Return the bytes of intermediate arrays that one thread of a lowered kernel holds, registers and stack tiles apart."""
    sizes = []

    def size(node: tirx.AllocBuffer) -> tirx.AllocBuffer:
        if node.buffer.scope() != "local":
            # Rows may be spread out (storage_align): the outermost stride tells.
            strides = [int(stride) for stride in node.buffer.strides]
            shape = [int(extent) for extent in node.buffer.shape]
            elements = shape[0] * strides[0] if strides else prod(shape)
            sizes.append(4 * elements)
        return node

    structural_map(module[SYMBOL], (tirx.AllocBuffer, size))
    return sum(sizes)


def _pipeline() -> tuple[tvm.transform.Pass, Callable[..., Any], Callable[..., Any]]:
    """Return the passes that follow `lower`, and TVM's own for what they leave."""
    passes = [
        tirx.transform.FlattenBuffer(),
        s_tir.transform.StmtSimplify(),
        tirx.transform.NarrowDataType(32),
        tirx.transform.VectorizeLoop(True),
        tirx.transform.StorageRewrite(),
        s_tir.transform.HoistIfThenElse(),
        tirx.transform.UnrollLoop(),
        s_tir.transform.RenormalizeSplitPattern(),
        tirx.transform.StmtSimplify(),
        tirx.transform.RemoveNoOp(),
        s_tir.transform.RewriteUnsafeSelect(),
        tirx.transform.CommonSubexprElim(),
        _keep_on_stack(),
        tirx.transform.VerifyMemory(),
        tirx.transform.AnnotateEntryFunc(),
        tirx.transform.SplitHostDevice(),
        tirx.transform.MakePackedAPI(),
    ]
    return tvm.transform.Sequential(passes), s_tir.pipeline.finalize_host_passes, s_tir.pipeline.finalize_device_passes


def _keep_on_stack() -> tvm.transform.Pass:
    """Return the pass that keeps what is local (a tile's sums, 2 KiB or so) on the stack.

    TVM would allocate a workspace for all but the smallest, for each tile anew.
    """

    def keep(node: tirx.AllocBuffer) -> tirx.AllocBuffer:
        local = node.buffer.scope() == "local"
        return tirx.AllocBuffer(node.buffer, {"disable_lower_builtin": tirx.const(True, "bool")}) if local else node

    def on_stack(func: tirx.PrimFunc, mod: tvm.IRModule, context: tvm.transform.PassContext) -> tirx.PrimFunc:
        return func.with_body(structural_map(func.body, (tirx.AllocBuffer, keep)))

    return tirx.transform.prim_func_pass(on_stack, opt_level=0, name="KeepOnStack")


tirx.register_tir_pipeline(PIPELINE, _pipeline)


def bind_arguments(func: tirx.PrimFunc, definition: Definition, dtype: str) -> tirx.PrimFunc:
    """Replace the parameters by the kernel's: data, filter[, bias], output, in the problem's own shapes and `dtype`.

    Inputs keep their memory and only change shape. Every output buffer becomes a part of the one
    output: its stores go to where the definition places them. Arguments are aligned to their element
    alone, because callers' arrays are.
    """
    problem = definition.problem
    size = DTYPE_BYTES[problem.dtype]
    shapes = {"data": problem.data_shape, "filter": problem.filter_shape}
    if problem.bias:
        shapes["bias"] = problem.bias_shape
    buffers = [tirx.decl_buffer(shape, dtype, name, data_alignment=size) for name, shape in shapes.items()]
    output = tirx.decl_buffer(problem.output_shape, dtype, "output", data_alignment=size)
    flat = tirx.decl_buffer((prod(problem.output_shape),), dtype, "output_flat", data_alignment=size)
    given, outs = list(func.params)[: len(shapes)], list(func.params)[len(shapes) :]

    def store(node: tirx.BufferStore) -> tirx.Stmt:
        for out, place in zip(outs, definition.outputs, strict=True):
            if node.buffer.same_as(out):
                offset, inside = place(list(node.indices))
                moved = tirx.BufferStore(flat, node.value, [offset])
                return moved if inside is None else tirx.IfThenElse(inside, moved, None)
        return node

    body = structural_map(func.body, (tirx.BufferStore, store))
    views = [
        tirx.DeclBuffer(old, data=tirx.buffer_data(new))
        for old, new in zip([*given, flat], [*buffers, output], strict=True)
    ]
    return tirx.PrimFunc([*buffers, output], tirx.SeqStmt([*views, body]), func.ret_type, func.attrs)
