"""Replace 16-bit filters, which are 8-bit integers minus a zero point, by 8-bit ones, of which an instruction multiplies twice as many.

A number is subtracted from each output channel's filter so that it fits in 8 bits. The sums then lack this number times the sum of the data
under the taps, which a convolution by ones to one channel computes and the next loop adds. The estimates include both. Where Winograd's
transforms are fastest, nothing is gained: transformed filters have 16 bits anyway.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax
from tvm.relax.expr_functor import mutator

from ...algorithms.shapes import F32_BITS
from ...algorithms.table import applicable
from ...dtypes import ROWS
from ...errors import InvalidProblemError
from ...problem import Problem
from ...targets.target import CpuTarget
from ..ir.constants import constant
from ..ir.graph import Graph
from ..ir.mutator import Rebinding, each_function
from ..ir.problem_of import is_product
from .fuse_epilogue import EpilogueChain
from .keep_floats import least_cycles
from .place import chains_of

Array = npt.NDArray[Any]
# Cycles to scale and round a vector of sums in a loop outside the kernel, mostly a division. Two cores of a Zen 4: 3136 pixels of
# 64 channels take 35 us.
_ROUNDED = 16.0


def narrow_filters(mod: tvm.IRModule, target: CpuTarget, math: str) -> tvm.IRModule:
    """Return a module with 8-bit filters where these are estimated to be faster."""

    def narrowing(new: tvm.IRModule, function: relax.Function) -> _Narrowing:
        chains = chains_of("", function)[0].values()
        names = {
            each.name for each in chains if isinstance(each, EpilogueChain) and is_faster(each.problem, target, math)
        }
        return _Narrowing(new, {each for each in Graph(function).values if each.name in names})

    return each_function(mod, narrowing, with_bindings=True)


def is_faster(problem: Problem, target: CpuTarget, math: str) -> bool:
    """Return whether a problem has a 16-bit filter, and an 8-bit filter with the additional sums is estimated to be faster."""
    if problem.types.filter != "s16" or problem.groups > 1:
        return False
    if applicable(problem, target, math)[0].schedules == "winograd":
        return False
    try:
        narrow = problem.with_(dtype=f"{problem.types.data}s8s32", bias=False, bias_dtype="", epilogue=())
    except InvalidProblemError:  # the other sums may exceed 32 bits
        return False
    ones = narrow.with_(out_channels=1)
    own, parts = (sum(least_cycles(each, target, math) for each in of) for of in ((problem,), (narrow, ones)))
    if problem.types.output != "s32":
        parts += prod(problem.output_shape) / (target.vector_bits // F32_BITS) * _ROUNDED
    return parts < own


@mutator
class _Narrowing(Rebinding):
    def __init__(self, mod: tvm.IRModule, chosen: set[relax.Var]) -> None:
        super().__init__(mod)
        self._chosen = chosen

    def rebound(self, binding: relax.VarBinding) -> relax.Expr | None:
        """Return the sums of a chosen convolution or product; None if some output channel's filter does not fit in 8 bits."""
        if binding.var not in self._chosen:
            return None
        call = self.visit_expr(binding.value)
        data, filter_ = call.args
        axis = 1 if is_product(call) else call.attrs.kernel_layout.index("O")
        array = constant(filter_)
        assert array is not None
        array = array.astype(np.int32)
        taken, shape = _excess(array, axis), [1] * call.ty.ndim
        narrow = array - taken
        if (narrow != narrow.astype(np.int8)).any():
            return None
        shape[-1 if is_product(call) else call.attrs.data_layout.index("C")] = taken.size
        ones = np.ones([1 if at == axis else size for at, size in enumerate(array.shape)], np.int8)
        sums, below = (
            self.builder_.emit(relax.Call(call.op, [data, relax.const(each)], call.attrs))
            for each in (narrow.astype(np.int8), ones)
        )
        lacking = relax.op.multiply(below, relax.const(taken.reshape(shape)))
        return relax.op.add(sums, self.builder_.emit(lacking))


def _excess(array: Array, axis: int) -> Array:
    """Return the smallest number to subtract from each output channel's filter, along an axis, so that it fits in 8 bits."""
    others = tuple(each for each in range(array.ndim) if each != axis)
    least, greatest = ROWS["s8"].range or (0, 0)
    above = np.maximum(array.max(others, keepdims=True) - greatest, 0)
    return above + np.minimum(array.min(others, keepdims=True) - least, 0)
