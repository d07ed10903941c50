"""Convert a network to another floating-point type: inputs, outputs and computations; weights are rounded once."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import tvm
from tvm import relax
from tvm.ir import TupleType
from tvm.relax.expr_functor import PyExprMutator, mutator

from ...dtypes import ROWS
from ...errors import InputError
from ..ir.constants import constant
from ..ir.graph import MAIN
from ..ir.mutator import tidy
from ..ir.operators import FUNCTION_CALLS
from ..ir.quantizers import QUANTIZERS
from ..options import DTYPES

_FLOATS = {ROWS[name].numpy for name in DTYPES} | {"float64"}
_INTEGERS = {*QUANTIZERS, "relax.dequantize"}


def compute_in(mod: tvm.IRModule, dtype: str) -> tvm.IRModule:
    """Return a module with all floating-point numbers in one type.

    Calls of functions compute in the types that the functions were written for.

    Raises
    ------
    InputError
        If the module computes in integers, or has branches.
    """
    functions = [each for _, each in mod.functions_items() if isinstance(each, relax.Function)]
    if len(functions) > 1:
        raise InputError(f"--dtype {dtype} is for networks without branches (If); leave it out")
    found: set[str] = set()
    relax.analysis.post_order_visit(mod[MAIN], lambda expr: found.add(getattr(getattr(expr, "op", None), "name", "")))
    if quantizers := sorted(found & _INTEGERS):
        raise InputError(
            f"--dtype {dtype} is for networks in floating-point numbers, and this one is quantised: it has {', '.join(quantizers)};"
            " leave it out"
        )
    mutator_ = _Typing(mod, ROWS[dtype].numpy)
    mutator_.builder_.update_func(mod.get_global_var(MAIN), mutator_.convert(mod[MAIN]))
    return tidy(mutator_.builder_.get())


@mutator
class _Typing(PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: tvm.IRModule, dtype: str) -> None:
        super().__init__(mod)
        self._dtype = dtype

    def convert(self, function: relax.Function) -> relax.Function:
        """Return a function with its parameters, and all values computed from them, in the type."""
        params = []
        for each in function.params:
            made = relax.Var(each.name, self._typed(each.ty))
            self.set_var_remap(each, made)
            params.append(made)
        body = self.visit_with_new_scope(function.body)
        return relax.Function(params, body, None, function.is_pure, function.attrs)

    def _typed(self, type_: Any) -> Any:
        if isinstance(type_, TupleType):
            return TupleType([self._typed(each) for each in type_.fields])
        if str(getattr(type_, "dtype", "")) not in _FLOATS:
            return type_
        return relax.TensorType(type_.shape, self._dtype)  # networks have no tensors of unknown shapes

    def visit_generic_const_(self, expr: Any) -> relax.Expr:
        """Return a constant in the type; finite numbers beyond its range become its greatest."""
        array = constant(expr)
        if array is None or str(array.dtype) not in _FLOATS:
            return expr
        return relax.const(_round_to(array, self._dtype), self._dtype)

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        """Return an operator with operands and results in the type."""
        args = [self.visit_expr(arg) for arg in call.args]
        if call.op.name == "relax.astype":
            return relax.op.astype(args[0], self._typed(call.ty).dtype)
        if call.op.name in FUNCTION_CALLS:
            args = [self._as_before(*each) for each in zip(args, call.args, strict=True)]
        made = self.builder_.normalize(relax.Call(call.op, args, call.attrs, call.ty_args))
        if isinstance(made.ty, TupleType):
            made = self.builder_.emit(made)
            parts = [self.builder_.emit(relax.TupleGetItem(made, at)) for at in range(len(made.ty.fields))]
            return relax.Tuple([self._cast(part, self._typed(part.ty)) for part in parts])
        return self._cast(made, self._typed(made.ty))

    def _as_before(self, arg: relax.Expr, before: relax.Expr) -> relax.Expr:
        """Return an argument of a function in the type that it was written for."""
        if isinstance(before, relax.Tuple):
            return relax.Tuple([self._as_before(*each) for each in zip(arg.fields, before.fields, strict=True)])
        return self._cast(arg, before.ty) if hasattr(before.ty, "dtype") else arg

    def _cast(self, value: relax.Expr, type_: Any) -> relax.Expr:
        if str(getattr(value.ty, "dtype", "")) == str(getattr(type_, "dtype", "")):
            return value
        return self.builder_.emit(relax.op.astype(self.builder_.emit(value), str(type_.dtype)))


def _round_to(array: Any, dtype: str) -> Any:
    """Return numbers in a type, finite ones clipped to its range."""
    kind = np.dtype(dtype)
    greatest = float(ml_dtypes.finfo(kind).max)
    bounded = np.where(np.isfinite(array), np.clip(array, -greatest, greatest), array)
    return bounded.astype(kind)
