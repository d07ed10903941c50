"""Our kernels for users of TVM: put them into Relax modules for `tvm.compile` and the virtual machine."""

from __future__ import annotations

import re
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import Call

from ..errors import TargetError
from ..lowering.common.rewrites import IMPORT, find_all
from ..lowering.cpu.passes import LAST_OF_ALLOCATION, generation
from ..network import passes
from ..network.ir.branches import inline
from ..network.kernels.build import CODE, LOWERED, NEXT_SYMBOL_OF_CODE, SYMBOL_OF_CODE, WORKSPACE
from ..network.kernels.replace import ConvolutionRow as ConvolutionRow
from ..network.options import Options
from ..network.report import report as report
from ..targets.target import Target

_CALLS = ("tirx.call_extern", "tirx.call_pure_extern")
# Attributes for networks' libraries, unknown to TVM.
_OWN = (CODE, SYMBOL_OF_CODE, NEXT_SYMBOL_OF_CODE, WORKSPACE, LOWERED)


@tvm.transform.module_pass(opt_level=0, name="tvmconv.UseKernels")
class UseKernels:
    """:func:`use_kernels` as a pass; TVM turns its errors into RuntimeErrors.

    Parameters
    ----------
    target, **options
        As for :func:`use_kernels`.
    """

    def __init__(self, target: str = "host", **options: Any) -> None:
        self._options, self._target = Options(target, **options), target

    def transform_module(self, mod: tvm.IRModule, context: tvm.transform.PassContext) -> tvm.IRModule:
        """Return the module with our kernels."""
        return _lower(inline(passes.run(mod, self._options)), self._target)


def use_kernels(mod: tvm.IRModule, target: str = "host", **options: Any) -> tvm.IRModule:
    """Return a Relax module with our kernels, for ``tvm.compile`` with a target of the same CPU.

    Convolutions and products with fixed shapes and constant filters, in f32, f16 or bf16, become ``call_tir`` of lowered functions with packed
    filters as constants; operators that follow them are fused. :func:`report` lists them, and the reasons for others.

    Parameters
    ----------
    mod
        A module, as from TVM's frontends.
    target
        As for :func:`tvmconv.building.builder.build`; a CPU.
    **options
        Options of :class:`tvmconv.network.options.Options`: `records`, `layout`, `math`, `progress`, `memory`, `trials`, `seconds`.

    Raises
    ------
    TargetError
        If kernels for `target` call functions that TVM's runtime lacks, such as the request to use AMX.
    TvmconvError
        As in :class:`tvmconv.network.options.Options`.
    """
    return _lower(inline(passes.use_kernels(mod, target, **options)), target)


def _lower(mod: tvm.IRModule, target: str) -> tvm.IRModule:
    """Return a module with kernels lowered so far that TVM's own passes can handle them."""
    ours = {variable: each for variable, each in mod.functions_items() if LOWERED in (each.attrs or {})}
    known = Target.parse(target).tvm()
    marked = {variable: each.with_attr("target", known) for variable, each in ours.items()}
    with known:
        lowered = generation(LAST_OF_ALLOCATION)(tvm.IRModule(marked))
    for variable, function in lowered.functions_items():
        _check(function, target)
        for name in (*_OWN, "target"):
            function = function.without_attr(name)
        mod.update_func(mod.get_global_var(variable.name_hint), function)
    return mod


def _check(function: tirx.PrimFunc, target: str) -> None:
    texts = [each.value.value for each in find_all(function.body, tirx.AttrStmt) if each.attr_key == IMPORT]
    defined = {name for text in texts for name in re.findall(r"^define .*?@(\w+)\(", text, re.MULTILINE)}
    for call in find_all(function.body, Call):
        name = str(call.args[0].value) if getattr(call.op, "name", "") in _CALLS else ""
        if name.startswith("tvmconv") and name not in defined:
            raise TargetError(
                f"kernels for {target} call {name}, which TVM's runtime lacks; give a target without that feature,"
                " or compile a network (tvmconv compile)"
            )
