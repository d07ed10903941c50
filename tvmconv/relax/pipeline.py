"""From a Relax module with our kernels to a library: TVM's passes for what is TVM's, ours for what is ours."""

from __future__ import annotations

import tvm
from tvm import s_tir, tirx

from ..lowering.cpu.pipeline import PIPELINE
from .kernels import LOWERED

NETWORK_PIPELINE = "tvmconv_network"


@tvm.transform.module_pass(opt_level=0, name="tvmconv.LowerNetwork")
class _LowerNetwork:
    """Lower functions that are marked LOWERED by the passes of our kernels, the others by TVM's."""

    def transform_module(self, mod: tvm.IRModule, context: tvm.transform.PassContext) -> tvm.IRModule:
        """Return the module lowered."""
        ours = {variable: each for variable, each in mod.functions_items() if LOWERED in (each.attrs or {})}
        others = {variable: each for variable, each in mod.functions_items() if variable not in ours}
        lowered = tvm.IRModule({}, attrs=mod.attrs)
        for functions, pipeline in ((ours, PIPELINE), (others, "s_tir")):
            if functions:
                passes, _, _ = tirx.get_tir_pipeline(pipeline)
                lowered.update(passes(tvm.IRModule(functions, attrs=mod.attrs)))
        return lowered


def _pipeline() -> tuple[tvm.transform.Pass, object, object]:
    return _LowerNetwork(), s_tir.pipeline.finalize_host_passes, s_tir.pipeline.finalize_device_passes


tirx.register_tir_pipeline(NETWORK_PIPELINE, _pipeline)
