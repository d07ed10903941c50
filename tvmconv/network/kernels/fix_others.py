"""Reproducible functions between kernels: their operations are rounded alike on every CPU, and none calls the C library."""

from __future__ import annotations

import tvm
from tvm import tirx
from tvm.ir import Call

from ...algorithms.annotations import FIXED
from ...errors import SourceError
from ...lowering.common.rewrites import find_all
from .build import LOWERED

# Functions that LLVM calls in the C library, whose rounding differs between machines. `tvmconv.lowering.common.elementary_arithmetic`
# replaces those of f32 and shorter types.
_OF_LIBRARY = frozenset(
    f"tirx.{name}"
    for name in (
        *("exp", "exp2", "exp10", "log", "log2", "log10", "log1p", "pow", "sigmoid", "erf", "hypot"),
        *("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
    )
)


def fix_others(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a module whose functions, except kernels, are annotated with FIXED; raise SourceError if one calls the C library."""
    fixed = tvm.IRModule({}, attrs=mod.attrs)
    for variable, function in mod.functions_items():
        if isinstance(function, tirx.PrimFunc) and LOWERED not in (function.attrs or {}):
            _check(variable.name_hint, function)
            function = function.with_attr(FIXED, True)
        fixed[variable] = function
    return fixed


def _check(name: str, function: tirx.PrimFunc) -> None:
    called = {getattr(each.op, "name", "") for each in find_all(function.body, Call)} & _OF_LIBRARY
    if called:
        raise SourceError(
            f"math='reproducible' has no {', '.join(each.removeprefix('tirx.') for each in sorted(called))} of its own for the"
            f" types in {name}, and results of the C library differ between CPUs; give the model in float32, or another math"
        )
