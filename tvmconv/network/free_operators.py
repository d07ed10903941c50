"""Operators supported in networks with free extents; others are refused by name, before anything is compiled."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax, tirx

from ..errors import SourceError
from ..lowering.common.rewrites import substitute
from .ir.branches import branches_of
from .ir.free import dims_of, is_free, is_known, product, simplify, symbols_in
from .ir.graph import MAIN
from .kernels.replace import ConvolutionRow

_MOVES = (
    "reshape",
    "expand_dims",
    "squeeze",
    "flatten",
    "permute_dims",
    "concat",
    "split",
    "strided_slice",
    "memory.view",
)
_ELEMENTS = [
    "abs",
    "acos",
    "acosh",
    "add",
    "asin",
    "asinh",
    "astype",
    "atan",
    "atan2",
    "atanh",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "ceil",
    "clip",
    "cos",
    "cosh",
    "divide",
    "equal",
    "erf",
    "exp",
    "floor",
    "floor_divide",
    "floor_mod",
    "greater",
    "greater_equal",
    "isfinite",
    "isinf",
    "isnan",
    "left_shift",
    "less",
    "less_equal",
    "log",
    "log1p",
    "log_add_exp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "multiply",
    "negative",
    "not_equal",
    "power",
    "right_shift",
    "round",
    "rsqrt",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "subtract",
    "tan",
    "tanh",
    "trunc",
    "where",
    "nn.gelu",
    "nn.gelu_tanh",
    "nn.leakyrelu",
    "nn.prelu",
    "nn.relu",
    "nn.silu",
    "nn.softplus",
]
_REDUCED = ("max", "mean", "min", "prod", "sum")
_POOLS = tuple(f"nn.{kind}_pool{rank}d" for kind in ("avg", "max") for rank in (1, 2, 3))
_OTHERS = (
    "argmax",
    "argmin",
    "argsort",
    "broadcast_to",
    "call_tir",
    "cumprod",
    "cumsum",
    "dequantize",
    "flip",
    "full",
    "full_like",
    "gather_elements",
    "image.grid_sample",
    "image.resize2d",
    "matmul",
    "mod",
    "nn.group_norm",
    "nn.instance_norm",
    "nn.layer_norm",
    "nn.log_softmax",
    "nn.pad",
    "nn.rms_norm",
    "nn.softmax",
    "quantize",
    "repeat",
    "scatter_elements",
    "slice_scatter",
    "sort",
    "stack",
    "take",
    "tile",
    "topk",
    "tril",
    "triu",
    "variance",
)
_KNOWN = {f"relax.{name}" for name in (*_MOVES, *_ELEMENTS, *_REDUCED, *_POOLS, *_OTHERS)}
# Extents with which reshapes are checked.
_TRIED = (840, 5041)
# Types of tensors.
_DTYPES = ("float64", "float32", "float16", "bfloat16", "uint8", "uint16", "uint32", "bool", "int8", "int32", "int64")


def check_operators(mod: tvm.IRModule, rows: list[ConvolutionRow]) -> None:
    """Raise SourceError, naming the operator, if a network has an unsupported operator on tensors with free extents."""
    reasons = {row.name.partition(".")[2]: row.why for row in rows if row.why}
    for block in mod[MAIN].body.blocks:
        for binding in block.bindings:
            value = binding.value
            if not isinstance(value, relax.Call):
                continue
            given = [field for arg in value.args for field in getattr(arg, "fields", [arg])]
            types = [each.ty for each in (binding.var, *given)]
            types = [field for each in types for field in getattr(each, "fields", [each])]
            if not any(map(is_free, types)) and all(map(is_known, types)):
                continue
            name = getattr(value.op, "name", str(value.op))
            if name == "relax.reshape" and not _have_same_size(value.args[0].ty, binding.var.ty):
                raise SourceError(
                    f"a reshape ({binding.var.name}) takes {value.args[0].ty} and returns {binding.var.ty}, which has another number of"
                    " elements at some extents: the model's exporter kept a number of the example; export it with that axis dynamic"
                )
            if branches_of(value) is not None or name not in _KNOWN:
                raise _lacking(name.removeprefix("relax."), binding.var, reasons.get(binding.var.name, ""))
            if not all(map(is_known, types)):
                raise SourceError(
                    f"the extents of {name.removeprefix('relax.')} ({binding.var.name}: {binding.var.ty}) do not follow from those of the"
                    " inputs, or those of its arguments may differ: say what the model needs of them, such as a multiple (?%32, in PyTorch"
                    ' 32 * Dim("q")), or give them as numbers'
                )
            for each in types:
                if isinstance(each, relax.TensorType) and str(each.dtype) not in _DTYPES:
                    raise _lacking(f"{name.removeprefix('relax.')} of {each.dtype}", binding.var, "")


def _have_same_size(given: Any, made: Any) -> bool:
    """Return whether two tensors have the same number of elements at the extents of `_TRIED`."""
    counts = [product(dims) if (dims := dims_of(each)) is not None else None for each in (given, made)]
    if None in counts:
        return True
    symbols = [symbol for each in counts for symbol in symbols_in(each)]
    for tried in _TRIED:
        values = {symbol: tirx.const(tried + 2 * number, "int64") for number, symbol in enumerate(symbols)}
        one, other = (each if isinstance(each, int) else simplify(substitute(each, values)) for each in counts)
        if one != other:
            return False
    return True


def _lacking(what: str, variable: relax.Var, why: str) -> SourceError:
    return SourceError(
        f"the network has {what} ({variable.name}: {variable.ty}), which networks with free extents do not support{f': {why}' if why else ''}; give"
        " the extents that it needs as numbers (--shape x=1x3x224x224), or cut the network before it (--cut TENSOR)"
    )
