"""A Relax module in layout NXC, by TVM's ConvertLayout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from ...errors import TvmconvError, last_line
from ..ir.constants import constant, static_shape
from ..ir.graph import Graph
from ..ir.mutator import Rebinding, each_function
from ..ir.operators import AVERAGE_POOLS, MAX_POOLS
from ..ir.problem_of import NotCoveredError, is_convolution, problem_of
from ..ir.quantizers import QUANTIZERS

# Requested layouts of data and filters; kernels pack filters of any layout.
_CHANNELS_LAST = {
    "relax.nn.conv1d": ["NWC", "OIW"],
    "relax.nn.conv2d": ["NHWC", "OIHW"],
    "relax.nn.conv3d": ["NDHWC", "OIDHW"],
    "relax.nn.conv1d_transpose": ["NWC", "IOW"],
    "relax.nn.conv2d_transpose": ["NHWC", "IOHW"],
    "relax.nn.conv3d_transpose": ["NDHWC", "IODHW"],
}


# ConvertLayout transposes around operators without a layout rule: these elementwise ones get that of `exp`.
_LAYOUTS = "FRelaxInferLayout"
for _name in ("relax.nn.softplus", *QUANTIZERS, "relax.dequantize"):
    if (_operator := tvm.ir.Op.get(_name)).get_attr(_LAYOUTS) is None:
        _operator.set_attr(_LAYOUTS, tvm.ir.Op.get("relax.exp").get_attr(_LAYOUTS))


# Commutative operators, to which ConvertLayout gives the layout of their first argument.
_COMMUTATIVE = {f"relax.{name}" for name in ("add", "multiply", "maximum", "minimum")}

_SPATIAL = "DHW"
_POOLS = {f"relax.nn.{name}_pool{rank}d" for name in ("avg", "max") for rank in (2, 3)}


class LayoutError(TvmconvError):
    """A network cannot be converted to NXC."""


def channels_last(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module with its convolutions, and the operators between them, in NXC.

    Raises
    ------
    LayoutError
        If ConvertLayout cannot do that.
    """
    mod = each_function(mod, _Fixing)
    try:
        mod = relax.transform.ConvertLayout({}, _layout_of)(mod)
    except Exception as error:  # TVM's checks are errors of many classes
        raise LayoutError(f"TVM's ConvertLayout cannot convert this network to NXC: {last_line(error)}") from error
    for _, function in mod.functions_items():
        if isinstance(function, relax.Function):
            _check_order(function)
    return each_function(mod, lambda new, _: _Ordering(new))


def _spatial_letters(call: relax.Call) -> list[str]:
    """Return the letters of a call's spatial axes, in the order of its layout."""
    layout = getattr(call.attrs, "layout", None) or getattr(call.attrs, "data_layout", None)
    return [letter for letter in str(layout or "") if letter in _SPATIAL]


def _check_order(function: relax.Function) -> None:
    """Raise LayoutError if an operator reads its spatial axes out of order, unless `_Ordering` repairs it."""
    wrong = []

    def note(expr: Any) -> None:
        if not isinstance(expr, relax.Call):
            return
        letters = _spatial_letters(expr)
        if letters != sorted(letters, key=_SPATIAL.index) or _is_resized_aside(expr):
            pooled = expr.op.name in _POOLS and expr.attrs.layout == expr.attrs.out_layout
            wrong.extend([] if pooled else [expr.op.name])

    relax.analysis.post_order_visit(function, note)
    if wrong:
        raise LayoutError(f"TVM's ConvertLayout exchanges axes of {wrong[0]}")


def _is_resized_aside(call: relax.Call) -> bool:
    """Return whether a call resizes a tensor whose first axis is no batch, for which TVM has no code."""
    return getattr(call.op, "name", "").startswith("relax.image.resize") and not str(call.attrs.layout).startswith("N")


def _layout_of(call: relax.Call) -> Mapping[str, list[str]]:
    """Return the layout requested for a call: convolutions that no kernel computes keep theirs.

    Without a request ConvertLayout would give them that of their data, and TVM computes transposed ones in one layout only.
    """
    if not is_convolution(call):
        return {}
    unchanged = {call.op.name: [call.attrs.data_layout, call.attrs.kernel_layout]}
    if constant(call.args[1]) is None:
        return unchanged
    try:
        problem_of(call)
    except NotCoveredError:
        return unchanged
    return _ask(call)


def _ask(call: relax.Call) -> Mapping[str, list[str]]:
    return {call.op.name: _CHANNELS_LAST[call.op.name]}


def _exchange(function: relax.Function) -> set[relax.Var]:
    """Return the commutative operators before a convolution whose second argument comes from a convolution, and the first does not."""
    values = Graph(function).values if isinstance(function.body, relax.SeqExpr) else {}
    changed = {variable for variable, value in values.items() if _is_changed(value)}
    laid_out, wanted = set(changed), {values[variable].args[0] for variable in changed}
    for variable, value in values.items():
        if not laid_out.isdisjoint(_follow(value)):
            laid_out.add(variable)
    for variable, value in reversed(values.items()):
        if variable in wanted and variable not in changed:
            wanted.update(_follow(value))
    return {
        variable
        for variable, value in values.items()
        if variable in wanted
        and getattr(getattr(value, "op", None), "name", "") in _COMMUTATIVE
        and all(static_shape(arg.ty) == static_shape(value.ty) for arg in value.args)
        and [arg in laid_out for arg in value.args] == [False, True]
    }


def _is_changed(value: Any) -> bool:
    """Return whether a value is a convolution to be converted to NXC."""
    return isinstance(value, relax.Call) and is_convolution(value) and _layout_of(value) == _ask(value)


def _follow(value: Any) -> list[relax.Var]:
    """Return the arguments that share a value's layout."""
    if isinstance(value, relax.TupleGetItem):
        return [value.tuple_value]
    parts = value.fields if isinstance(value, relax.Tuple) else []
    if isinstance(value, relax.Call) and getattr(value.op, "name", "relax.permute_dims") != "relax.permute_dims":
        known = value.op.get_attr(_LAYOUTS) is not None
        parts = [part for arg in value.args if known for part in getattr(arg, "fields", [arg])]
    return [part for part in parts if isinstance(part, relax.Var)]


@mutator
class _Fixing(Rebinding):
    """Gives operators the form that ConvertLayout can convert to NXC.

    It gives a sum the layout of its first argument, so a convolution's output becomes the first. Of ScatterND it changes the layout
    of the data, but not the indices, so the data is reshaped to its own shape, which keeps its layout. It crashes at a stack along a
    new last axis (``Index -1 out of bounds``), which becomes a concatenation.
    """

    def __init__(self, mod: tvm.IRModule, function: relax.Function) -> None:
        super().__init__(mod)
        self._exchanged = _exchange(function)

    def rebound(self, binding: relax.VarBinding) -> relax.Expr | None:
        """Return a commutative operator with its arguments exchanged; None for others."""
        if binding.var not in self._exchanged:
            return None
        call = binding.value
        return relax.Call(call.op, [*map(self.visit_expr, reversed(call.args))], call.attrs, call.ty_args)

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        """Return a call in the form that ConvertLayout can convert."""
        call = self.visit_expr_post_order(call)
        name = getattr(call.op, "name", "")
        if name == "relax.scatter_nd" and static_shape(call.args[0].ty) is not None:
            data = self.builder_.emit(relax.op.reshape(call.args[0], call.args[0].ty.shape))
            return relax.Call(call.op, [data, *call.args[1:]], call.attrs, call.ty_args)
        if name == "relax.stack" and int(call.attrs.axis) in (-1, call.ty.ndim - 1):
            stacked = call.args[0]
            parts = (
                stacked.fields
                if isinstance(stacked, relax.Tuple)
                else [relax.TupleGetItem(stacked, index) for index in range(len(stacked.ty.fields))]
            )
            return relax.op.concat([self.builder_.emit(relax.op.expand_dims(part, -1)) for part in parts], -1)
        return call


@mutator
class _Ordering(PyExprMutator):  # type: ignore[misc]
    """Sorts the spatial axes of pools.

    Pools of one dimension are written as two with an expanded axis, and ConvertLayout gives such a pool the layout NWHC. Its attributes
    then name axes in that order, but TVM's code expects them sorted.
    """

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        """Return a pool with sorted spatial axes, and its attributes in their order."""
        call = self.visit_expr_post_order(call)
        letters = _spatial_letters(call)
        in_order = sorted(letters, key=_SPATIAL.index)
        if letters == in_order:
            return call
        pools = AVERAGE_POOLS if "avg" in call.op.name else MAX_POOLS
        attrs, rank = call.attrs, len(letters)
        order = [in_order.index(letter) for letter in letters]
        padding = list(attrs.padding)
        renamed = dict(zip(letters, in_order, strict=True))
        layout = "".join(renamed.get(letter, letter) for letter in str(attrs.layout))
        return pools[rank](
            call.args[0],
            *([int(each[at]) for at in order] for each in (attrs.pool_size, attrs.strides)),
            [int(padding[at + end]) for end in (0, rank) for at in order],
            [int(attrs.dilation[at]) for at in order],
            bool(attrs.ceil_mode),
            bool(attrs.count_include_pad),
            layout,
            layout,
        )
