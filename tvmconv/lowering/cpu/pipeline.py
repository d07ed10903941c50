"""From a scheduled function to one that TVM compiles: the kernel's own arguments put in place, then lowered.

TVM's own pipeline for CPUs, less what these kernels never use (threads of GPUs, software pipelines),
and with two steps more: a function is split in two where the filter is packed (packing.py), and given the
argument list of a kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.ir import StringImm
from tvm_ffi.structural import structural_map

from ...algorithms.annotations import PACK
from ...algorithms.definition import Definition
from ...algorithms.types import KERNEL_DTYPES
from ...problem import DTYPE_BYTES, Problem
from ...runtime.arrays import LINE_BYTES
from ...runtime.kernel_object import Workspace
from ...runtime.packed import PACK_SYMBOL, PACKED_SYMBOL
from ..activations import expand_steps
from ..entry_points import EntryPoints
from .choices import choose_once
from .columns import part_columns
from .instructions import by_instructions
from .lanes import divide_whole_vectors
from .offsets import constants_last
from .packing import Layout, Split, elements, split
from .padding import skip_padding
from .prefetching import prefetch_filters
from .reloading import reload_data
from .rewrites import answered, check_done, check_well_formed, found, rewritten
from .shuffles import by_shuffles
from .striding import deinterleave
from .taps import take_taps_together
from .tiles import by_tiles
from .transposing import transpose

SYMBOL = "tvmconv_kernel"
# For what `lower` returns; for what `allocate` does.
PIPELINE, ALLOCATED = "tvmconv", "tvmconv.allocated"
# TVM's mark of an array for which it is not to call the allocator.
_ON_STACK = "disable_lower_builtin"
# Below both, one thread computes: see `is_tiny`.
TINY_FLOPS, TINY_BYTES = 250_000, 64 * 1024
# A task's rows of one channel, say: allocating them takes 70 ns. Measured on a Zen 5: 256 depthwise planes of 28x28 took
# 45 microseconds, and 33 with their copies on the stack.
STACK_BYTES = 16 * 1024
# Of a function whose indices get their constants last: a transposed convolution's, but with lanes across groups LLVM would then
# unroll more than registers hold. 4x4 with stride 2 of 64 channels each by itself took 160 us on one core of a Zen 3, and 173 so.
CONSTANTS_LAST = "tvmconv.constants_last"


@dataclass(frozen=True)
class Lowered:
    """A kernel ready for `tvm.compile` with PIPELINE.

    Attributes
    ----------
    module
        The function SYMBOL; and PACK_SYMBOL and PACKED_SYMBOL if the kernel packs its filter.
    layout
        What PACK_SYMBOL writes; None: the filter is read in place.
    """

    module: tvm.IRModule
    layout: Layout | None


def lower(mod: tvm.IRModule, definition: Definition, entry_points: EntryPoints = EntryPoints.BOTH) -> Lowered:
    """Return the scheduled module with kernel arguments and without blocks.

    Without ``PLAIN`` it has no SYMBOL where it has PACKED_SYMBOL.
    """
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
    if definition.bare:
        return Lowered(tvm.IRModule({SYMBOL: _bare(func, definition)}), None)
    func = func.with_body(prefetch_filters(take_taps_together(skip_padding(part_columns(by_tiles(func.body))))))
    halves = split(func)
    if halves is None:
        func = func.with_body(rewritten(func.body, PACK, lambda loop: answered(loop, PACK)))
    functions = {SYMBOL: bind_arguments(func, definition, KERNEL_DTYPES)}
    if halves is not None:
        functions = {
            PACK_SYMBOL: _pack(func, definition, halves),
            PACKED_SYMBOL: bind_arguments(func, definition, KERNEL_DTYPES, halves),
        }
        if EntryPoints.PLAIN in entry_points:
            functions[SYMBOL] = _both(func, definition, halves)
    for symbol, function in functions.items():
        function = _serial_if_tiny(function, definition)
        body = deinterleave(transpose(by_instructions(by_shuffles(divide_whole_vectors(function.body)))))
        body = reload_data(body)
        check_done(body)
        function = function.with_body(body)
        check_well_formed(function)
        across = any(getattr(window, "across", False) for window in definition.windows)
        if definition.problem.op != "convolution" and not across:
            function = function.with_attr(CONSTANTS_LAST, True)
        functions[symbol] = function.with_attr("global_symbol", symbol)
    return Lowered(tvm.IRModule(functions), halves.layout if halves else None)


def _bare(func: tirx.PrimFunc, definition: Definition) -> tirx.PrimFunc:
    """Return the kernel of a function that nothing rewrites."""
    function = _serial_if_tiny(bind_arguments(func, definition, KERNEL_DTYPES), definition)
    check_well_formed(function)
    return function.with_attr("global_symbol", SYMBOL)


def functions_of(module: tvm.IRModule) -> dict[str, tirx.PrimFunc]:
    """Return the functions of a module by their names."""
    return {variable.name_hint: function for variable, function in module.functions.items()}


def is_tiny(problem: Problem) -> bool:
    """Whether other threads would cost more than they give.

    A parallel loop costs half a microsecond when its threads are awake, and milliseconds when one waits for a
    processor; a problem of this size takes 3 microseconds (two cores of a Zen 4: equal at 225 792 operations).
    """
    return problem.flops < TINY_FLOPS and problem.nbytes < TINY_BYTES


def _serial_if_tiny(func: tirx.PrimFunc, definition: Definition) -> tirx.PrimFunc:
    """Return a function whose loops all run in one thread, where its problem is tiny."""

    def serial(loop: tirx.For) -> tirx.For:
        if loop.kind != tirx.ForKind.PARALLEL:
            return loop
        return tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.SERIAL, loop.body)

    return func.with_body(structural_map(func.body, (tirx.For, serial))) if is_tiny(definition.problem) else func


def workspace_bytes(module: tvm.IRModule) -> int:
    """Return the bytes of intermediate arrays that one thread of a lowered kernel holds, registers and stack tiles apart."""
    sizes = []

    def size(node: tirx.AllocBuffer) -> tirx.AllocBuffer:
        if node.buffer.scope() != "local":
            sizes.append(4 * elements(node.buffer))
        return node

    for function in module.functions.values():
        structural_map(function, (tirx.AllocBuffer, size))
    return sum(sizes)


def workspaces(allocated: tvm.IRModule) -> dict[str, Workspace]:
    """Return what each function of a module that :func:`allocate` returned takes from the allocator, at most."""
    functions = functions_of(allocated)
    sizes = {name: _workspace(function.body) for name, function in functions.items()}
    called = [sizes[each.value] for each in found(functions[SYMBOL].body, StringImm) if each.value in sizes]
    if called:  # `_both`: one after the other
        own = sizes[SYMBOL]
        shared, task = max(each.shared for each in called), max(each.task for each in called)
        sizes[SYMBOL] = Workspace(own.shared + shared, own.task + task)
    return sizes


def _workspace(body: tirx.Stmt) -> Workspace:
    """Return what a function itself allocates: each array from a cache line on, with a line for its size before it."""
    loops = [loop for loop in found(body, tirx.For) if loop.kind == tirx.ForKind.PARALLEL]
    within = sum(_block(each) for loop in loops for each in found(loop.body, tirx.AllocBuffer))
    return Workspace(sum(map(_block, found(body, tirx.AllocBuffer))) - within, within)


def _block(node: tirx.AllocBuffer) -> int:
    if _ON_STACK in node.annotations:
        return 0
    dtype = node.buffer.dtype
    size = elements(node.buffer) * dtype.bits * dtype.lanes // 8
    return (-(-size // LINE_BYTES) + 1) * LINE_BYTES


def _allocating() -> tvm.transform.Pass:
    """Return the passes that follow `lower`, up to where each array has its place."""
    passes = [
        tirx.transform.FlattenBuffer(),
        s_tir.transform.StmtSimplify(),
        tirx.transform.NarrowDataType(32),
        tirx.transform.VectorizeLoop(True),
        choose_once(),
        tirx.transform.StorageRewrite(),
        s_tir.transform.HoistIfThenElse(),
        tirx.transform.UnrollLoop(),
        s_tir.transform.RenormalizeSplitPattern(),
        tirx.transform.StmtSimplify(),
        s_tir.transform.RewriteUnsafeSelect(),
        expand_steps(),
        _index_constants_last(),
        keep_on_stack(),
    ]
    return tvm.transform.Sequential(passes)


def _calling() -> tuple[tvm.transform.Pass, Callable[..., Any], Callable[..., Any]]:
    """Return the passes that follow those, and TVM's own for what they leave."""
    passes = [
        tirx.transform.VerifyMemory(),
        tirx.transform.AnnotateEntryFunc(),
        tirx.transform.SplitHostDevice(),
        tirx.transform.MakePackedAPI(),
    ]
    return tvm.transform.Sequential(passes), s_tir.pipeline.finalize_host_passes, s_tir.pipeline.finalize_device_passes


def _pipeline() -> tuple[tvm.transform.Pass, Callable[..., Any], Callable[..., Any]]:
    """Return all passes that follow `lower`."""
    calling, *finalizing = _calling()
    return tvm.transform.Sequential([_allocating(), calling]), *finalizing


def allocate(module: tvm.IRModule, target: Any) -> tvm.IRModule:
    """Return the functions of :func:`lower` for a ``tvm.target.Target``, each array in its place: `tvm.compile` with ALLOCATED goes on."""
    return _allocating()(tirx.transform.BindTarget(target.with_host(target))(module))


def _index_constants_last() -> tvm.transform.Pass:
    """Return the pass that adds constants of indices last, in functions that ask for it."""

    def reorder(func: tirx.PrimFunc, mod: tvm.IRModule, context: tvm.transform.PassContext) -> tirx.PrimFunc:
        return func.with_body(constants_last(func.body)) if CONSTANTS_LAST in func.attrs else func

    return tirx.transform.prim_func_pass(reorder, opt_level=0, name="IndexConstantsLast")


def keep_on_stack() -> tvm.transform.Pass:
    """Return the pass that keeps what is local (a tile's sums, 2 KiB or so), and other small arrays, on the stack.

    TVM would allocate a workspace for all but the smallest, for each tile or task again.
    """

    def keep(node: tirx.AllocBuffer) -> tirx.AllocBuffer:
        stays = node.buffer.scope() == "local" or 4 * elements(node.buffer) <= STACK_BYTES
        return tirx.AllocBuffer(node.buffer, {_ON_STACK: tirx.const(True, "bool")}) if stays else node

    def on_stack(func: tirx.PrimFunc, mod: tvm.IRModule, context: tvm.transform.PassContext) -> tirx.PrimFunc:
        return func.with_body(structural_map(func.body, (tirx.AllocBuffer, keep)))

    return tirx.transform.prim_func_pass(on_stack, opt_level=0, name="KeepOnStack")


tirx.register_tir_pipeline(PIPELINE, _pipeline)
tirx.register_tir_pipeline(ALLOCATED, _calling)


def bind_arguments(
    func: tirx.PrimFunc, definition: Definition, types: Mapping[str, str], halves: Split | None = None
) -> tirx.PrimFunc:
    """Replace the parameters by the kernel's: the problem's operands and the output, in their own shapes and `types`.

    Inputs keep their memory and only change shape. Every output buffer becomes a part of the one
    output: its stores go to where the definition places them. Of `halves` only the rest remains, and `packed` takes
    the filter's place.
    """
    arguments = _arguments(definition.problem, types)
    output, inputs = arguments["output"], list(arguments.values())[:-1]
    size = DTYPE_BYTES[definition.problem.dtype]
    flat = tirx.decl_buffer((prod(output.shape),), output.dtype, "output_flat", data_alignment=size)
    outs = list(func.params)[len(inputs) :]

    def store(node: tirx.BufferStore) -> tirx.Stmt:
        for out, store_index in zip(outs, definition.outputs, strict=True):
            if node.buffer.same_as(out):
                offset, inside = store_index(list(node.indices))
                stored = tirx.BufferStore(flat, node.value, [offset])
                return stored if inside is None else tirx.IfThenElse(inside, stored, None)
        return node

    body = [func.body] if halves is None else halves.rest
    views = [_view(old, new) for old, new in zip(func.params, inputs, strict=False)]
    if halves is not None:
        inputs[1] = halves.packed()
        views[1:2] = halves.views(inputs[1])
    placed = [structural_map(each, (tirx.BufferStore, store)) for each in body]
    statements = tirx.SeqStmt([*views, _view(flat, output), *placed])
    return tirx.PrimFunc([*inputs, output], statements, func.ret_type, func.attrs)


def _pack(func: tirx.PrimFunc, definition: Definition, halves: Split) -> tirx.PrimFunc:
    """Return the function of filter and `packed`."""
    filter_, packed = _arguments(definition.problem)["filter"], halves.packed()
    statements = tirx.SeqStmt([_view(func.params[1], filter_), *halves.views(packed), *halves.pack])
    return tirx.PrimFunc([filter_, packed], statements, func.ret_type, func.attrs)


def _both(func: tirx.PrimFunc, definition: Definition, halves: Split) -> tirx.PrimFunc:
    """Return the function of the operands and the output that calls the two others."""
    data, filter_, *rest = _arguments(definition.problem).values()
    packed = halves.packed()
    calls = (PACK_SYMBOL, filter_, packed), (PACKED_SYMBOL, data, packed, *rest)
    body = tirx.SeqStmt([tirx.AllocBuffer(packed), *(tirx.Evaluate(tirx.call_cpacked(*call)) for call in calls)])
    return tirx.PrimFunc([data, filter_, *rest], body, func.ret_type, func.attrs)


def _arguments(problem: Problem, types: Mapping[str, str] = KERNEL_DTYPES) -> dict[str, Any]:
    """Return new buffers for a kernel's arguments, aligned to their elements alone, because callers' arrays are."""
    arrays = {**problem.operands, "output": (problem.output_shape, problem.dtype)}
    return {
        name: tirx.decl_buffer(shape, types[dtype], name, data_alignment=DTYPE_BYTES[dtype])
        for name, (shape, dtype) in arrays.items()
    }


def _view(old: Any, new: Any) -> tirx.Stmt:
    """Make the buffer `old` the memory of `new`, in another shape."""
    return tirx.DeclBuffer(old, data=tirx.buffer_data(new))
