"""Lower a module's operators to scheduled functions, and describe the network for its library."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib.metadata import version
from traceback import walk_tb
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.ir import TupleType

from ..errors import BuildError, SourceError, TvmconvError, last_line
from ..targets.target import CpuTarget
from ..version import __version__
from .ir.constants import static_shape
from .ir.extents import extents_of, input_shape, output_shape
from .ir.graph import MAIN, OUTPUT_NAMES
from .ir.nodes import carry, carry_fused
from .kernels.fix_others import fix_others
from .operators import legalizations
from .operators.attention import with_attention
from .operators.block_sums import by_blocks
from .operators.bound_fusion import bound_fusion
from .operators.normalization import narrow_groups
from .operators.resampling import call_resampling
from .report import notes_of
from .rewrite.check_indices import check_indices
from .schedule.rules import schedule_others


def schedule_functions(mod: tvm.IRModule, target: CpuTarget, math: str = "default") -> tvm.IRModule:
    """Return a module whose operators are scheduled functions, fused where an element needs few others.

    With reproducible `math`, attention stays products and a softmax: its C function sums by the CPU's vectors.
    """
    reproducible = math == "reproducible"
    mod = carry(
        mod, check_indices(by_blocks(narrow_groups(call_resampling(mod if reproducible else with_attention(mod)))))
    )
    with target.tvm():
        functions = tvm.transform.Sequential(
            [
                relax.transform.DecomposeOpsForInference(),
                relax.transform.LegalizeOps(legalizations(target)),
                tvm.transform.module_pass(
                    lambda given, _: _rewrite_reshapes(given), opt_level=0, name="tvmconv.Reshapes"
                ),
                relax.transform.AnnotateTIROpPattern(),
                tvm.transform.module_pass(lambda given, _: bound_fusion(given), opt_level=0, name="tvmconv.Bounded"),
            ]
        )(mod)
        mod = carry(mod, functions)
        mod = carry_fused(mod, relax.transform.FuseOps()(mod))
        scheduled = tvm.transform.Sequential(
            [relax.transform.FuseTIR(), relax.transform.DeadCodeElimination(), schedule_others(target)]
        )(mod)
    return fix_others(scheduled) if reproducible else scheduled


def _rewrite_reshapes(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a module whose calls of functions that only reshape are reshapes, which need no code.

    TVM's (0.27) analysis ends with an error at some slices of free extents, such as of ``3 * s - 6 * s // 4``; such
    functions reshape nothing, and have no body while TVM's pass runs.
    """
    failing = {
        variable: function
        for variable, function in mod.functions_items()
        if isinstance(function, tirx.PrimFunc) and not _is_analysed(function)
    }
    mod = tvm.IRModule(dict(mod.functions_items()), attrs=mod.attrs)
    for variable, function in failing.items():
        mod.update_func(variable, function.with_body(tirx.Evaluate(0)))
    mod = relax.transform.RewriteDataflowReshape()(mod)
    for variable, function in failing.items():
        mod.update_func(variable, function)
    return mod


def _is_analysed(function: tirx.PrimFunc) -> bool:
    try:
        relax.analysis.has_reshape_pattern(function)
    except tvm.error.InternalError:
        return False
    return True


def describe(mod: tvm.IRModule, target: CpuTarget) -> dict[str, Any]:
    """Return the description in a network's library (`tvmconv.runtime.networks.network`).

    Raises
    ------
    SourceError
        If the module has no function ``main``, or one of its inputs or outputs has no fixed shape.
    """
    if MAIN not in [variable.name_hint for variable in mod.get_global_vars()]:
        raise SourceError(f"the module has no function {MAIN!r}, a network's entry")
    main = mod[MAIN]
    result = main.body.body.ty  # the function's return type lacks extents that are multiples of symbols
    outputs = list(result.fields) if isinstance(result, TupleType) else [result]
    names = [str(name) for name in main.attrs[OUTPUT_NAMES]] if OUTPUT_NAMES in (main.attrs or {}) else []
    if len(set(names)) != len(outputs):
        names = [f"output{number}" for number in range(len(outputs))]
    free, found = extents_of(mod), notes_of(mod)
    return {
        "tvmconv": __version__,
        "tvm": version("apache-tvm"),
        "target": target.name,
        "features": list(target.features),
        "inputs": [_tensor(str(each.name), each.ty, input_shape if free else static_shape) for each in main.params],
        "outputs": [
            _tensor(name, each, output_shape if free else static_shape)
            for name, each in zip(names, outputs, strict=True)
        ],
        **({"extents": [asdict(each) for each in free]} if free else {}),
        "report": found["convolutions"],
        "rewrites": found["rewrites"],
        "math": found["math"],
        "model_bytes": found["weights"],
    }


@contextmanager
def tvm_errors() -> Iterator[None]:
    """Raise errors of passes as BuildError, which names TVM or, where the code is ours, tvmconv; pass our own and OSError on."""
    try:
        yield
    except (TvmconvError, OSError):
        raise
    except Exception as error:
        *_, (frame, _) = walk_tb(error.__traceback__)
        ours = frame.f_globals.get("__name__", "").startswith("tvmconv.")
        who, advice = ("tvmconv", "please report it; ") if ours else ("TVM", "")
        raise BuildError(
            f"{who} cannot compile the network: {last_line(error)}; {advice}tvmconv build compiles its convolutions"
        ) from error


def _tensor(name: str, type_: Any, shape_of: Callable[[Any], Any]) -> dict[str, Any]:
    shape = shape_of(type_)
    if shape is None:
        raise SourceError(
            f"{name} of the network has no fixed shape: {type_}; give the inputs' shapes, or, if it depends on the inputs'"
            " values, as NonZero's does, cut the network before it (--cut TENSOR)"
        )
    return {"name": name, "shape": shape, "dtype": str(type_.dtype)}
