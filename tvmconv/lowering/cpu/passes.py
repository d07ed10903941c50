"""PASSES: the passes from a scheduled function to LLVM, in order, one entry each.

After `LOWERING` all requests of the schedule are fulfilled; `tvm.compile` applies `GENERATION`, registered as PIPELINE. Both contain the
passes of TVM's own pipeline for CPUs, except those that these kernels never need (GPU threads, software pipelines), and ours between
them. Each of ours changes only functions that request it by an annotation of a loop or of the function
(`tvmconv.algorithms.annotations`), or by a call that the pass turns into an instruction. ``tvmconv inspect SIGNATURE --stage NAME`` shows
a kernel's functions after a pass, ``--stage passes`` this list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.ir import Call

from ...algorithms import annotations as ask
from ...algorithms.definition import Definition
from ...algorithms.pairs import DOT_SUMS, ROUND
from ..common.activations import expand_steps
from ..common.entry_points import EntryPoints
from ..common.fixed_rounding import fix_rounding
from ..common.rewrites import EXTERN, asked_of, check_answered, check_well_formed, find_all
from .functions import functions_of, kernel_functions
from .packing import Halves, split, unsplit
from .rewrites.apart import keep_apart
from .rewrites.choices import choose_once
from .rewrites.columns import part_columns
from .rewrites.instructions import by_elements, by_instructions, by_sum, by_vex
from .rewrites.lanes import divide_whole_vectors
from .rewrites.matrices import by_matrices
from .rewrites.offsets import index_constants_last
from .rewrites.overlapping import overlap_vectors
from .rewrites.padding import skip_padding
from .rewrites.prefetching import prefetch_filters
from .rewrites.shuffles import by_shuffles
from .rewrites.staging import stage_sums
from .rewrites.streaming import prefetch_parts
from .rewrites.striding import deinterleave
from .rewrites.tap_columns import lay_taps_apart
from .rewrites.taps import take_taps_together
from .rewrites.tasks.cuts import PRODUCTS, announce_tasks, cut_tasks
from .rewrites.tasks.threads import in_one_thread
from .rewrites.tasks.together import share_together
from .rewrites.tile_prefetching import prefetch_tiles
from .rewrites.tiles import by_tiles
from .rewrites.transposing import transpose
from .stack import keep_on_stack

# Names of pipelines: all of GENERATION, and the passes after allocation (workspaces.py).
PIPELINE, ALLOCATED = "tvmconv", "tvmconv.allocated"
LAST_OF_ALLOCATION = "keep-on-stack"


@dataclass(frozen=True)
class PassKernel:
    """A kernel between two passes of LOWERING.

    Attributes
    ----------
    module
        The scheduled function ``main``; after the pass ``bind``, the functions of a library.
    definition, entry_points
        The kernel's definition, and its library's entry points.
    requests
        Requests of the schedule and the definition.
    halves
        The two parts of ``main``, if it packs the filter.
    """

    module: tvm.IRModule
    definition: Definition
    entry_points: EntryPoints
    requests: frozenset[str]
    halves: Halves | None = None


@dataclass(frozen=True)
class Pass:
    """A step of lowering.

    Attributes
    ----------
    name
        The argument of ``tvmconv inspect --stage``.
    run
        In LOWERING, a function from a PassKernel to the next; in GENERATION, a pass of TVM.
    asked
        Annotations and called functions that request the pass; none: it runs for every kernel.
    after
        Passes that must have run before, and why.
    """

    name: str
    run: Any
    asked: tuple[str, ...] = ()
    after: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, kernel: PassKernel) -> PassKernel:
        """Return the kernel after this pass of LOWERING."""
        if self.asked and kernel.requests.isdisjoint(self.asked):
            return kernel
        kernel = self.run(kernel)
        if kernel.requests.isdisjoint(self.asked):
            return kernel
        answered = {name: _without(func, self.asked) for name, func in functions_of(kernel.module).items()}
        return replace(kernel, module=tvm.IRModule(answered))


def requests(func: tirx.PrimFunc) -> frozenset[str]:
    """Return the annotations of a function and its loops, and the functions that it calls."""
    called = {str(each.args[0].value) for each in find_all(func.body, Call) if each.op.same_as(EXTERN)}
    return frozenset(asked_of(func) | called)


def _without(func: tirx.PrimFunc, asked: tuple[str, ...]) -> tirx.PrimFunc:
    for each in asked:
        if each in (func.attrs or {}):
            func = func.without_attr(each)
    return func


def _tvm(run: tvm.transform.Pass, kernel: PassKernel) -> PassKernel:
    return replace(kernel, module=run(kernel.module))


def _bodies(rewrite: Callable[[Any], Any], kernel: PassKernel) -> PassKernel:
    """Rewrite the body of each function."""
    rewritten = {name: func.with_body(rewrite(func.body)) for name, func in functions_of(kernel.module).items()}
    return replace(kernel, module=tvm.IRModule(rewritten))


def _split(kernel: PassKernel) -> PassKernel:
    """Split a function into its halves; if there are none, remove the annotations."""
    main = kernel.module["main"]
    halves = split(main)
    if halves is None:
        return replace(kernel, module=tvm.IRModule({"main": unsplit(main)}))
    return replace(kernel, halves=halves)


def _bind(kernel: PassKernel) -> PassKernel:
    functions = kernel_functions(kernel.module["main"], kernel.definition, kernel.halves, kernel.entry_points)
    return replace(kernel, module=tvm.IRModule(functions))


def _announce(kernel: PassKernel) -> PassKernel:
    """Announce tasks; with one output pixel, they add one product for each element of the filter that they read."""
    problem = kernel.definition.problem
    products = PRODUCTS if problem.batch * prod(problem.out_spatial) == 1 else 1
    return _bodies(partial(announce_tasks, products=products), kernel)


def _check(kernel: PassKernel) -> PassKernel:
    for func in kernel.module.functions.values():
        check_answered(func, {key for each in GENERATION for key in each.asked})
        check_well_formed(func)
    return kernel


def tvms(run: tvm.transform.Pass, after: Mapping[str, str] | None = None) -> Pass:
    """Return a pass of TVM under its own name."""
    return Pass(run.info.name.rpartition(".")[2], partial(_tvm, run), after=after or {})


def ours(name: str, rewrite: Callable[[Any], Any], *asked: str, after: Mapping[str, str]) -> Pass:
    """Return a pass that rewrites the bodies of functions that request it."""
    return Pass(name, partial(_bodies, rewrite), asked, after)


_LOOPS = {"LowerOpaqueBlock": "it reads loops, not blocks"}
LOWERING: tuple[Pass, ...] = (
    tvms(s_tir.transform.CanonicalizeLoop()),
    tvms(s_tir.transform.LowerInitBlock(), {"CanonicalizeLoop": "loops begin at 0"}),
    tvms(s_tir.transform.PlanAndUpdateBufferAllocationLocation(), {"LowerInitBlock": "what clears a sum uses it, too"}),
    tvms(s_tir.transform.ConvertBlocksToOpaque(), {"PlanAndUpdateBufferAllocationLocation": "it goes by blocks' variables"}),
    tvms(s_tir.transform.CompactBufferAllocation(), {"ConvertBlocksToOpaque": "regions are then of loops' variables"}),
    tvms(s_tir.transform.LowerMatchBuffer(), {"CompactBufferAllocation": "buffers have their final shapes"}),
    tvms(s_tir.transform.StmtSimplify(), {"CompactBufferAllocation": "it makes new indices"}),
    tvms(s_tir.transform.LowerOpaqueBlock(), {"LowerMatchBuffer": "a block's buffers go with it"}),
    ours("tiles", by_tiles, ask.CONFIGURE, ask.ROLE, after=_LOOPS),
    ours("columns", part_columns, ask.COLUMNS, after=_LOOPS),
    ours("padding", skip_padding, *ask.PADDING, after={"columns": "a copy's conditions on columns still stand together"}),
    ours("taps", take_taps_together, ask.TAPS, after={"padding": "products with padding are under conditions"}),
    ours("prefetch", prefetch_filters, ask.PREFETCH, ask.PREFETCH_NEXT, after={"padding": "sums under conditions are steps, too"}),
    ours("prefetch-parts", prefetch_parts, ask.PREFETCH_PART, after={"padding": "sums under conditions are steps, too"}),
    ours("prefetch-tiles", prefetch_tiles, ask.PREFETCH_TILES, after={"tiles": "it knows a step by its instructions"}),
    Pass("split", _split, (ask.PACK,), {"prefetch": "it reads the packed filter as a buffer of the function"}),
    Pass("bind", _bind, after={"split": "the two parts have arguments of their own"}),
    ours("one-thread", in_one_thread, ask.ONE_THREAD, after={"bind": "it is for all functions of the kernel"}),
    ours("quotients", divide_whole_vectors, ask.QUOTIENTS, after={"bind": "it makes indices of the output"}),
    ours("shuffles", by_shuffles, ask.SHUFFLE, after={"padding": "data is read without conditions"}),
    ours("elements", by_elements, ask.BY_ELEMENT, after={"shuffles": "orders of lanes are known"}),
    ours("vex", by_vex, ask.BY_VEX, after={"shuffles": "orders of lanes are known"}),
    ours("sums", by_sum, ask.BY_SUM, after={"shuffles": "orders of lanes are known"}),
    ours("matrices", by_matrices, ask.MATRICES, after={"padding": "products with padding are under conditions"}),
    ours("transpose", transpose, ask.TRANSPOSE, after={"bind": "columns lie together in the output, not in a stage"}),
    ours("instructions", by_instructions, *DOT_SUMS, ROUND, ask.ROUND_STORES, after={"shuffles": "orders of lanes are known", "elements": "it takes what dot products that leaves", "vex": "it takes those, too", "sums": "it takes those, too", "matrices": "it takes those, too", "transpose": "what rows round is then by instructions"}),
    ours("overlap", overlap_vectors, ask.OVERLAP, after={"padding": "rows of padding are left out of copies"}),
    ours("tap-columns", lay_taps_apart, ask.TAP_COLUMNS, after=_LOOPS),
    ours("stride", deinterleave, ask.STRIDED, after=_LOOPS),
    ours("stage-sums", stage_sums, after={"transpose": "it asks for orders of stores", "instructions": "it takes sums of dot products"}),
    ours("apart", keep_apart, ask.APART, after={"shuffles": "what all lanes read is a load outside of vectors"}),
    ours("together", share_together, after={"apart": "it counts what is left of a task", "one-thread": "tasks are then known"}),
    ours("cuts", cut_tasks, ask.CUT, ask.IN_PIECE, after={"together": "its tasks are cut, too"}),
    Pass("tasks", _announce, after={"cuts": "a loop that is cut announces itself"}),
    Pass("check", _check, after={"cuts": "it is the last that answers an annotation of a loop"}),
)  # fmt: skip
_VECTORS = {"VectorizeLoop": "values are vectors"}
GENERATION: tuple[Pass, ...] = (
    Pass("FlattenBuffer", tirx.transform.FlattenBuffer(), after={"check": "accesses outside of an axis show no more"}),
    Pass("SimplifyFlat", s_tir.transform.StmtSimplify(), after={"FlattenBuffer": "it makes new indices"}),
    Pass("NarrowDataType", tirx.transform.NarrowDataType(32), after={"SimplifyFlat": "bounds of indices are known"}),
    Pass("VectorizeLoop", tirx.transform.VectorizeLoop(True), after={"NarrowDataType": "vectors of indices are narrow"}),
    Pass("choose-once", choose_once(), (ask.CHOOSE_ONCE,), _VECTORS),
    Pass("StorageRewrite", tirx.transform.StorageRewrite(), after=_VECTORS),
    Pass("HoistIfThenElse", s_tir.transform.HoistIfThenElse(), after={"StorageRewrite": "allocations do not end a nest"}),
    Pass("UnrollLoop", tirx.transform.UnrollLoop(), after={"choose-once": "it goes by the variables of unrolled loops"}),
    Pass("RenormalizeSplitPattern", s_tir.transform.RenormalizeSplitPattern(), after={"UnrollLoop": "indices are of the loops that stay"}),
    Pass("SimplifyUnrolled", tirx.transform.StmtSimplify(), after={"UnrollLoop": "choices by unrolled variables are decided"}),
    Pass("RewriteUnsafeSelect", s_tir.transform.RewriteUnsafeSelect(), after={"SimplifyUnrolled": "fewer choices are left"}),
    Pass("expand-steps", expand_steps(), ("calls of an epilogue's steps",), {**_VECTORS, "RewriteUnsafeSelect": "a step is one value"}),
    Pass("fix-rounding", fix_rounding(), (ask.FIXED,), {"expand-steps": "arithmetic of steps is rounded, too"}),
    Pass("constants-last", index_constants_last(), (ask.CONSTANTS_LAST,), {"SimplifyUnrolled": "it would order sums anew"}),
    Pass(LAST_OF_ALLOCATION, keep_on_stack(), after={"StorageRewrite": "arrays that share a place are one"}),
    Pass("VerifyMemory", tirx.transform.VerifyMemory()),
    Pass("AnnotateEntryFunc", tirx.transform.AnnotateEntryFunc()),
    Pass("SplitHostDevice", tirx.transform.SplitHostDevice(), after={"AnnotateEntryFunc": "entries are the host's"}),
    Pass("MakePackedAPI", tirx.transform.MakePackedAPI(), after={"SplitHostDevice": "it is for the host's functions"}),
)  # fmt: skip
PASSES = LOWERING + GENERATION


def generation(last: str = GENERATION[-1].name, after: str = "") -> tvm.transform.Sequential:
    """Return the passes of GENERATION up to `last`; if `after` is given, only those after that pass."""
    names = [each.name for each in GENERATION]
    first = names.index(after) + 1 if after else 0
    return tvm.transform.Sequential([each.run for each in GENERATION[first : names.index(last) + 1]])


def _pipeline(after: str) -> tuple[tvm.transform.Pass, Callable[..., Any], Callable[..., Any]]:
    """Return the passes of GENERATION, or those after one of them, and TVM's final passes."""
    return generation(after=after), s_tir.pipeline.finalize_host_passes, s_tir.pipeline.finalize_device_passes


tirx.register_tir_pipeline(PIPELINE, partial(_pipeline, ""))
tirx.register_tir_pipeline(ALLOCATED, partial(_pipeline, LAST_OF_ALLOCATION))
