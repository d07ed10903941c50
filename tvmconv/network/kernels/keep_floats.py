"""Compute integer layers in f32 where that is estimated to be faster (``--quantized fastest``).

Tensors between layers keep 8 bits: such a layer converts its data to f32, multiplies it by the same filter with sums in f32, and a loop of
its own rounds the result. The estimates include conversion and rounding.
"""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from ...algorithms.shapes import F32_BITS
from ...algorithms.table import applicable
from ...problem import Problem
from ...signature import format_signature
from ...targets.target import CpuTarget
from ..ir.constants import constant
from ..ir.graph import Graph
from ..ir.mutator import each_function, tidy
from ..ir.operators import CONVOLUTIONS, TRANSPOSED
from ..ir.problem_of import is_product
from .fuse_epilogue import EpilogueChain
from .place import chains_of

# Cycles to convert a vector of integers to f32, and to write and read a vector of f32. One core of a Zen 3: 12544 pixels of 16 and
# 64 channels take 4 and 20 us; of 64, written and read, 31.
_WIDENED, _AGAIN = 1.0, 1.0


def keep_floats(mod: tvm.IRModule, target: CpuTarget, math: str) -> tuple[tvm.IRModule, list[str]]:
    """Return a module with integer convolutions and products in f32 where that is estimated to be faster, and a line for each."""
    lines: list[str] = []

    def keeping(new: tvm.IRModule, function: relax.Function) -> _Keeping:
        graph, kept = Graph(function), set()
        for chain in chains_of("", function)[0].values():
            if isinstance(chain, EpilogueChain) and chain.problem.is_quantized and not chain.free:
                own, in_f32 = estimates(chain.problem, target, math)
                if in_f32 < own and chain.problem.types.output != "s32":
                    kept.update(_follow_sums(chain, graph))
                    shares = f"{in_f32 / own:.2f} of the estimated cycles"
                    lines.append(f"{chain.name} ({format_signature(chain.problem)}): {shares}")
        return _Keeping(new, kept)

    return tidy(each_function(mod, keeping, with_bindings=True)), lines


def estimates(problem: Problem, target: CpuTarget, math: str) -> tuple[float, float]:
    """Return the cycles of an integer problem, and of the same layer in f32 with the conversions around its kernel."""
    shape = {"dtype": "f32", "zero_point": 0, "filter_zero_point": 0, "epilogue": ()}
    in_f32 = problem.with_(**shape, bias=True, bias_dtype="")
    lanes = target.vector_bits // F32_BITS
    data, output = (int(np.prod(each)) / lanes for each in (problem.data_shape, problem.output_shape))
    again = output * _AGAIN if problem.types.output != "f32" else 0.0
    return least_cycles(problem, target, math), least_cycles(in_f32, target, math) + data * _WIDENED + again


def least_cycles(problem: Problem, target: CpuTarget, math: str) -> float:
    """Return the least estimate of a problem's cycles by any algorithm."""
    return applicable(problem, target, math)[0].cycles(problem, target)


def _follow_sums(chain: EpilogueChain, graph: Graph) -> set[relax.Var]:
    """Return the variables of a chain's integer sums, of the convolution and its bias, and of their conversion."""
    found = {each for each in graph.values if each.name == chain.name}
    variable = next(iter(found))
    while str(variable.ty.dtype) == "int32":
        found.add(variable)
        (variable,) = graph.readers(variable)
    return found | {variable}


@mutator
class _Keeping(PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: tvm.IRModule, kept: set[relax.Var]) -> None:
        super().__init__(mod)
        self._kept = kept

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        """Bind kept sums to variables of f32, without their later conversion."""
        if binding.var not in self._kept:
            super().visit_var_binding_(binding)
            return
        call, name = binding.value, binding.value.op.name
        args = [self._float(self.visit_expr(each)) for each in call.args]
        if name == "relax.astype":
            made = args[0]
        elif name == "relax.add":
            made = relax.op.add(*args)
        else:
            made = relax.op.matmul(*args) if is_product(call) else _convolve(call, *args)
        self.set_var_remap(binding.var, self.builder_.emit(made, binding.var.name))

    def _float(self, value: relax.Expr) -> relax.Expr:
        array = constant(value)
        if array is not None:
            return relax.const(array.astype(np.float32))
        if str(value.ty.dtype) == "float32":
            return value
        return self.builder_.emit(relax.op.astype(value, "float32"))


def _convolve(call: relax.Call, data: relax.Expr, filter_: relax.Expr) -> relax.Expr:
    """Return a convolution of f32 with the attributes of one of integers."""
    attrs, rank, more = call.attrs, call.ty.ndim - 2, {}
    operators = CONVOLUTIONS
    if "transpose" in call.op.name:
        operators, more = TRANSPOSED, {"output_padding": list(attrs.output_padding)}
    return operators[rank](
        data,
        filter_,
        strides=list(attrs.strides),
        padding=list(attrs.padding),
        dilation=list(attrs.dilation),
        groups=int(attrs.groups),
        data_layout=attrs.data_layout,
        kernel_layout=attrs.kernel_layout,
        out_layout=attrs.out_layout,
        **more,
    )
