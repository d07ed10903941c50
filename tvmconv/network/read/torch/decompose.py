"""Decompositions of programs of `torch.export` into the operators that the reader supports."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ....checks import LARGEST
from ....errors import SourceError, missing_extra

try:
    import torch
    from torch.export import default_decompositions
except ImportError:
    raise missing_extra("torch", "torch") from None

from .complex import without_complex
from .fake_quantize import QUANTIZED
from .masked import without_masks
from .rare_decompositions import RARER

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

# Operators that stay whole: PyTorch would write them with unnecessary moves or tests.
WHOLE = {
    "linear.default", "matmul.default", "scaled_dot_product_attention.default", "unfold.default",
    "softplus.default", "leaky_relu.default",
    *(f"{name}{rank}d.default" for rank in (1, 2, 3) for name in ("adaptive_max_pool", "adaptive_avg_pool", "_adaptive_avg_pool")),
    *(f"{name}{rank}d.vec" for rank in (1, 2, 3) for name in ("upsample_nearest", "_upsample_nearest_exact")),
    # These include a check, a side effect, for which a program's graph would pass a token.
    "inverse.default", "linalg_cholesky.default", "linalg_inv.default", "linalg_solve.default",
    "upsample_linear1d.vec", "upsample_bilinear2d.vec", "upsample_trilinear3d.vec", "upsample_bicubic2d.vec",
}  # fmt: skip


def _pad(default: Callable[..., Any], data: Any, pad: Any, mode: str = "constant", value: Any = None) -> Any:
    """Return a padding; a circular one by indices, because PyTorch's decomposition overwrites parts of its result."""
    axes = range(data.ndim - 1, data.ndim - 1 - len(pad) // 2, -1)
    if mode != "circular" or not all(isinstance(each, int) for each in pad) or min(pad, default=-1) < 0:
        return default(data, pad, mode, value)
    for axis, begin, end in zip(axes, pad[::2], pad[1::2], strict=True):
        extent = data.shape[axis]
        data = data.index_select(axis, torch.arange(-begin, extent + end, device=data.device) % extent)
    return data


def _fold(default: Callable[..., Any], data: Any, size: Any, *windows: Any) -> Any:
    """Return ``col2im``, whole for free extents, as the scatter's indices are then unknown."""
    is_fixed = all(isinstance(each, int) for each in (*data.shape, *size))
    return default(data, size, *windows) if is_fixed else NotImplemented


def _normalize_instances(
    default: Callable[..., Any], data: Any, weight: Any, bias: Any, mean: Any, var: Any, uses_input: bool, *more: Any
) -> Any:
    """Return an instance normalization, for free extents by groups of one channel: PyTorch would repeat weights for each image."""
    if not uses_input or all(isinstance(each, int) for each in data.shape):
        return default(data, weight, bias, mean, var, uses_input, *more)
    return torch.ops.aten.group_norm(data, data.shape[1], weight, bias, more[1])


def decompose(program: ExportedProgram) -> ExportedProgram:
    """Return a program of ``torch.export.export`` in fewer kinds of operators, none of which works in place.

    Raises
    ------
    SourceError
        If PyTorch's decomposition of an operator holds for some of the free extents only.
    """
    decided = decisions(program)
    known = len(decided)
    table = default_decompositions()
    for operator in [each for each in table if each.namespace == "aten" and each.__name__ in WHOLE]:
        table.pop(operator)
    pad = torch.ops.aten.pad.default
    table[pad] = partial(_pad, table[pad])
    fold = torch.ops.aten.col2im.default
    table[fold] = partial(_fold, table[fold])
    normalization = torch.ops.aten.instance_norm.default
    table[normalization] = partial(_normalize_instances, table[normalization])
    table.update({**RARER, **QUANTIZED})
    with warnings.catch_warnings():  # of PyTorch's about itself
        warnings.simplefilter("ignore", FutureWarning)
        program = program.run_decompositions(table)
    conditions = [each.expr for each in decided[known:] if not _holds(each.expr, program.range_constraints)]
    if conditions:
        raise SourceError(
            f"an operator of the program depends on extents that vary by call: {', '.join(map(str, conditions))}"
        )
    # Removes unread random numbers, such as initial weights.
    program.graph.eliminate_dead_code(_is_kept)
    return without_complex(without_masks(program))


def decisions(program: ExportedProgram) -> list[Any]:
    """Return the list to which PyTorch adds decisions on free extents; an empty one for fixed extents."""
    values = (node.meta.get("val") for node in program.graph.find_nodes(op="placeholder"))
    sizes = (size for value in values for size in getattr(value, "shape", ()))
    return next((size.node.shape_env.guards for size in sizes if isinstance(size, torch.SymInt)), [])


def _holds(condition: Any, ranges: Mapping[Any, Any]) -> bool:
    """Return whether a condition on extents holds for 500 samples, or tests whether one is 0 or 1.

    PyTorch tests that for strides and broadcasts, where our code for an extent of 1 is that for others.
    """
    if getattr(condition, "is_Relational", False) and {condition.lhs, condition.rhs} & {0, 1}:
        return True
    symbols = sorted(condition.free_symbols, key=str)
    lows = [max(int(ranges[each].lower), 1) if each in ranges else 1 for each in symbols]
    highs = [int(min(ranges[each].upper, LARGEST)) if each in ranges else LARGEST for each in symbols]
    draw = random.Random(0)
    for number in range(500):
        most = 1000 if number % 2 else 20
        sizes = [draw.randint(low, min(low + most, high)) for low, high in zip(lows, highs, strict=True)]
        try:
            is_true = condition.subs(dict(zip(symbols, sizes, strict=True))) == True  # noqa: E712 - SymPy's
        except ZeroDivisionError:  # such as by h // 4 windows, for which the model has no result
            continue
        if not is_true:
            return False
    return True


def _is_kept(node: Node) -> bool:
    is_random = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
    return bool(node.is_impure()) and not is_random
