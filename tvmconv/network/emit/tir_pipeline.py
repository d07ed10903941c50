"""Lower a network's functions for LLVM: our kernels by their own pipeline, other functions by TVM's passes and ours."""

from __future__ import annotations

import tvm
from tvm import s_tir, tirx

from ...lowering.common.activations import expand_steps
from ...lowering.common.fixed_rounding import fix_rounding
from ...lowering.common.rewrites import map_nodes
from ...lowering.cpu.passes import PIPELINE
from ...lowering.cpu.rewrites.bf16_bits import broadcast_bits
from ...lowering.cpu.rewrites.squares import by_squares
from ...lowering.cpu.rewrites.tasks.cuts import PRODUCTS, announce_tasks
from ...lowering.cpu.stack import keep_on_stack
from ...support.timing import stage
from ..kernels.build import LOWERED
from .quotients import hide_quotients, show_quotients

NETWORK_PIPELINE = "tvmconv_network"
_ENTRY = "tirx.is_entry_func"


@tvm.transform.module_pass(opt_level=0, name="tvmconv.LowerNetwork")
class _LowerNetwork:
    """Lower functions marked LOWERED by our kernels' passes, the others by TVM's."""

    def transform_module(self, mod: tvm.IRModule, context: tvm.transform.PassContext) -> tvm.IRModule:
        """Return the module lowered."""
        ours = {variable: each for variable, each in mod.functions_items() if LOWERED in (each.attrs or {})}
        others = {variable: each for variable, each in mod.functions_items() if variable not in ours}
        lowered = tvm.IRModule({}, attrs=mod.attrs)
        for functions, passes in ((ours, tirx.get_tir_pipeline(PIPELINE)[0]), (others, _others())):
            if functions:
                with stage("lower"):
                    lowered.update(passes(tvm.IRModule(functions, attrs=mod.attrs)))
        # An entry function gets a second name, the same in each module: a library of several modules does not link for Windows.
        functions = {variable: each.without_attr(_ENTRY) for variable, each in lowered.functions_items()}
        return tvm.IRModule(functions, attrs=mod.attrs)


def _others() -> tvm.transform.Pass:
    """Return TVM's own passes for CPUs, and ours for activations and arrays on the stack."""
    return tvm.transform.Sequential(
        [
            s_tir.transform.CanonicalizeLoop(),
            s_tir.transform.LowerInitBlock(),
            s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
            s_tir.transform.ConvertBlocksToOpaque(),
            s_tir.transform.CompactBufferAllocation(),
            s_tir.transform.LowerMatchBuffer(),
            s_tir.transform.StmtSimplify(),
            s_tir.transform.AnnotateIrregularLoop(),
            s_tir.transform.LowerOpaqueBlock(),
            tirx.transform.prim_func_pass(_drop_sequences, opt_level=0, name="DropSequences"),
            by_squares(),
            hide_quotients(),
            tirx.transform.FlattenBuffer(),
            show_quotients(),
            tirx.transform.BF16ComputeLegalize(),
            tirx.transform.NarrowDataType(32),
            s_tir.transform.LoopPartition(),
            tirx.transform.prim_func_pass(_announce, opt_level=0, name="AnnounceTasks"),
            tirx.transform.VectorizeLoop(True),
            tirx.transform.StorageRewrite(),
            s_tir.transform.HoistIfThenElse(),
            tirx.transform.UnrollLoop(),
            s_tir.transform.RenormalizeSplitPattern(),
            tirx.transform.StmtSimplify(),
            tirx.transform.RemoveNoOp(),
            s_tir.transform.RewriteUnsafeSelect(),
            expand_steps(),
            fix_rounding(),
            tirx.transform.CommonSubexprElim(),
            keep_on_stack(),
            tirx.transform.FP8ComputeLegalize(),
            tirx.transform.VerifyMemory(),
            tirx.transform.SplitHostDevice(),
            tirx.transform.MakePackedAPI(),
            tirx.transform.FP8StorageLegalize(),
            broadcast_bits(),
            tirx.transform.BF16StorageLegalize(),
        ]
    )


def _drop_sequences(func: tirx.PrimFunc, mod: tvm.IRModule, context: tvm.transform.PassContext) -> tirx.PrimFunc:
    # TVM marks the sequences of its scatters, and its code generation then warns that it does not know the mark.
    def drop(mark: tirx.AttrStmt) -> tirx.Stmt:
        return mark.body if mark.attr_key == "pragma_scope" else mark

    return func.with_body(map_nodes(func.body, tirx.AttrStmt, drop))


def _announce(func: tirx.PrimFunc, mod: tvm.IRModule, context: tvm.transform.PassContext) -> tirx.PrimFunc:
    return func.with_body(announce_tasks(func.body, PRODUCTS))


def _pipeline() -> tuple[tvm.transform.Pass, object, object]:
    return _LowerNetwork(), s_tir.pipeline.finalize_host_passes, s_tir.pipeline.finalize_device_passes


tirx.register_tir_pipeline(NETWORK_PIPELINE, _pipeline)
