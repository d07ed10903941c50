"""A Relax module in layout NXC, by TVM's ConvertLayout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from ..errors import TvmconvError, last_line
from .mutating import each_function
from .problems import NotCoveredError, is_convolution, problem_of
from .simplify import constant, static_shape

# What ConvertLayout is asked for, by the layout of the data; filters are packed whatever their layout.
_CHANNELS_LAST = {
    "relax.nn.conv1d": ["NWC", "OIW"],
    "relax.nn.conv2d": ["NHWC", "OIHW"],
    "relax.nn.conv3d": ["NDHWC", "OIDHW"],
    "relax.nn.conv1d_transpose": ["NWC", "IOW"],
    "relax.nn.conv2d_transpose": ["NHWC", "IOHW"],
    "relax.nn.conv3d_transpose": ["NDHWC", "IODHW"],
}


# ConvertLayout puts transpositions around operators whose layouts TVM has not: this is one element by element.
_LAYOUTS = "FRelaxInferLayout"
_SOFTPLUS = tvm.ir.Op.get("relax.nn.softplus")
if _SOFTPLUS.get_attr(_LAYOUTS) is None:
    _SOFTPLUS.set_attr(_LAYOUTS, tvm.ir.Op.get("relax.exp").get_attr(_LAYOUTS))


class LayoutError(TvmconvError):
    """A network cannot be brought to NXC."""


def channels_last(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module with its convolutions, and what lies between, in NXC.

    Raises
    ------
    LayoutError
        If ConvertLayout cannot do that.
    """
    branches: list[Any] = []
    for function in mod.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, lambda e: branches.append(e) if isinstance(e, relax.If) else None)
    if branches:  # a convolution that a branch begins and ends with crashed when it was called
        raise LayoutError("TVM's ConvertLayout changes the branches of an If to code that crashes")
    mod = each_function(mod, lambda new, _: _Fixing(new))
    try:
        return relax.transform.ConvertLayout({}, _layout_of)(mod)
    except Exception as error:  # TVM's checks are errors of many classes
        raise LayoutError(f"TVM's ConvertLayout does not bring this network to NXC: {last_line(error)}") from error


def _layout_of(call: relax.Call) -> Mapping[str, list[str]]:
    """Return the layout that ConvertLayout shall give a call: of convolutions that no kernel takes the one that they have.

    Not asked for one it would give them that of their data, and TVM computes transposed ones in no other than its own.
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
    return {call.op.name: _CHANNELS_LAST[call.op.name]}


@mutator
class _Fixing(PyExprMutator):  # type: ignore[misc]
    """Puts a reshape that changes nothing before a ScatterND, whose indices are for the axes as they are.

    ConvertLayout keeps the layout of what is reshaped; of ScatterND it changes that of the data, but not its indices.
    """

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        """Return a call with its layout fixed, if it is one."""
        call = self.visit_expr_post_order(call)
        if getattr(call.op, "name", "") != "relax.scatter_nd" or static_shape(call.args[0].ty) is None:
            return call
        data = self.builder_.emit(relax.op.reshape(call.args[0], call.args[0].ty.shape))
        return relax.Call(call.op, [data, *call.args[1:]], call.attrs, call.ty_args)
