"""ONNX's Conv and ConvTranspose: their defaults and padding rules, resolved to a Problem.

Where ONNX's documents and onnxruntime differ, the rules are onnxruntime's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ... import ops
from ...checks import axes, choice, integers
from ...errors import InvalidProblemError
from ...problem import Problem

OP_TYPES = ("Conv", "ConvTranspose")
_AUTO_PADS = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")


def node_problem(
    op_type: str,
    attributes: Mapping[str, Any],
    data_shape: Sequence[int],
    filter_shape: Sequence[int],
    bias_shape: Sequence[int] | None = None,
    dtype: str = "f32",
) -> Problem:
    """Resolve a node.

    Parameters
    ----------
    op_type
        ``"Conv"`` or ``"ConvTranspose"``.
    attributes
        Those that the node has; absent ones take ONNX's defaults.
    data_shape, filter_shape, bias_shape
        Shapes of the node's X, W and B (None: no B), in ONNX's layouts, which are NCX and OIX.
    dtype
        ``"f32"``, ``"f16"`` or ``"bf16"``.

    Raises
    ------
    InvalidProblemError
        Naming the attribute or input, its value and what is allowed.
    """
    rank = len(data_shape) - 2
    if not 1 <= rank <= 3:
        raise InvalidProblemError(
            f"data has shape {list(data_shape)}; {op_type} takes one to three spatial axes (rank 3, 4 or 5)"
        )
    mode = attributes.get("auto_pad", "NOTSET")
    choice("auto_pad", mode, _AUTO_PADS)
    common: dict[str, Any] = {
        "strides": attributes.get("strides", (1,) * rank),
        "dilations": attributes.get("dilations", (1,) * rank),
        "groups": attributes.get("group", 1),
        "data_format": "NCX",
        "filter_format": "OIX",
        "dtype": dtype,
        "bias_shape": bias_shape,
    }
    taps = tuple(filter_shape[2:])
    if "kernel_shape" in attributes and axes("kernel_shape", attributes["kernel_shape"], rank, 0) != taps:
        raise InvalidProblemError(
            f"kernel_shape is {list(attributes['kernel_shape'])}, but the filter's shape {list(filter_shape)} has taps {list(taps)}"
        )
    if op_type == "Conv":
        problem = ops.convolution(data_shape, filter_shape, **common, **_pads(attributes, mode, rank))
        if mode.startswith("SAME"):
            _check_same(mode, problem, common["strides"])
        return problem
    return _transposed_problem(attributes, mode, data_shape, filter_shape, common)


def _transposed_problem(
    attributes: Mapping[str, Any],
    mode: str,
    data_shape: Sequence[int],
    filter_shape: Sequence[int],
    common: dict[str, Any],
) -> Problem:
    rank = len(data_shape) - 2
    output_padding = axes("output_padding", attributes.get("output_padding", (0,) * rank), rank, 0)
    if "output_shape" not in attributes and mode in ("NOTSET", "VALID"):
        pads = _pads(attributes, mode, rank)
        return ops.convolution_backprop_data(data_shape, filter_shape, **common, **pads, output_padding=output_padding)
    unpadded = ops.convolution_backprop_data(
        data_shape, filter_shape, **common, auto_pad="valid", output_padding=output_padding
    )
    if "output_shape" in attributes:
        wanted = axes("output_shape", attributes["output_shape"], rank, 1)
    else:
        # A filter shorter than its stride has fewer outputs than SAME asks for.
        same = (x * s for x, s in zip(unpadded.in_spatial, common["strides"], strict=True))
        wanted = tuple(map(min, unpadded.out_spatial, same))
    totals = [max(y - w, 0) for y, w in zip(unpadded.out_spatial, wanted, strict=True)]
    begin = [total // 2 if mode == "SAME_UPPER" else total - total // 2 for total in totals]
    natural = [y - extra for y, extra in zip(unpadded.out_spatial, output_padding, strict=True)]
    ends = [n - b - w for n, b, w in zip(natural, begin, wanted, strict=True)]
    return ops.convolution_backprop_data(
        data_shape,
        filter_shape,
        **common,
        pads_begin=begin,
        pads_end=[max(end, 0) for end in ends],
        output_padding=[max(-end, 0) for end in ends],
    )


def pads_of(op_type: str, attributes: Mapping[str, Any], rank: int) -> str | tuple[tuple[int, ...], tuple[int, ...]]:
    """Return a convolution's pads as its attributes have them, and as `SourceNode` does."""
    if op_type != "Conv":
        return ""
    pads = _pads(attributes, attributes.get("auto_pad", "NOTSET"), rank)
    if rule := pads.get("auto_pad"):
        return ((0,) * rank,) * 2 if rule == "VALID" else rule.lower()
    return tuple(pads["pads_begin"]), tuple(pads["pads_end"])


def _pads(attributes: Mapping[str, Any], mode: str, rank: int) -> dict[str, Any]:
    if mode != "NOTSET":
        return {"auto_pad": mode}
    pads = integers("pads", attributes.get("pads", (0,) * (2 * rank)), 0)
    if len(pads) != 2 * rank:
        raise InvalidProblemError(
            f"pads is {list(pads)}, {len(pads)} numbers; {2 * rank} are needed: the beginning of each spatial axis, then the end of each"
        )
    return {"pads_begin": pads[:rank], "pads_end": pads[rank:]}


def _check_same(mode: str, problem: Problem, strides: Sequence[int]) -> None:
    """Refuse strides so large that SAME would crop elements, where systems differ.

    The contract (and TensorFlow) pad nothing then; onnxruntime crops the beginning once there are three elements
    too many.
    """
    axes_ = zip(problem.in_spatial, problem.out_spatial, problem.kernel, problem.dilations, strides, strict=True)
    for axis, (x, y, k, d, s) in enumerate(axes_):
        total = (y - 1) * s + d * (k - 1) + 1 - x
        if total <= -3:
            raise InvalidProblemError(
                f"spatial axis {axis}: auto_pad {mode} asks for a padding of {total} (input {x}, kernel {k}, stride {s}), "
                "which frameworks split differently; write explicit pads"
            )
