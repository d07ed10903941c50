"""OpenVINO's four convolutions, with its own rules of padding, resolved to a Problem."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ... import ops
from ...problem import Problem
from ..shapes import Shape

OP_TYPES = ("Convolution", "GroupConvolution", "ConvolutionBackpropData", "GroupConvolutionBackpropData")


def node_problem(
    op_type: str, attributes: Mapping[str, Any], data: Shape, taps: Shape, output: Shape, dtype: str
) -> Problem:
    """Resolve one of OpenVINO's convolutions (operation set 1).

    Parameters
    ----------
    op_type
        One of `OP_TYPES`.
    attributes
        Those of the operation, by OpenVINO's names.
    data, taps, output
        The shapes of its data, filter and output; a filter with groups has them as its first axis.
    dtype
        ``"f32"``, ``"f16"`` or ``"bf16"``.

    Raises
    ------
    InvalidProblemError
        If there is no such convolution.
    """
    groups = 1
    if op_type.startswith("Group"):
        groups, taps = taps[0], (taps[0] * taps[1], *taps[2:])
    mode = attributes["auto_pad"]
    mode = None if mode in ("explicit", "notset") else mode
    common: dict[str, Any] = {
        "strides": attributes["strides"],
        "dilations": attributes["dilations"],
        "groups": groups,
        "data_format": "NCX",
        "filter_format": "OIX",
        "dtype": dtype,
    }
    begin, end = attributes["pads_begin"], attributes["pads_end"]
    if "Backprop" not in op_type:
        return ops.convolution(data, taps, **common, pads_begin=begin, pads_end=end, auto_pad=mode)
    spatial = output[2:]
    if mode in ("same_upper", "same_lower"):
        # Without an output shape there are no pads, and the output is the natural one.
        natural = ops.convolution_backprop_data(
            data, taps, **common, auto_pad=mode, output_padding=attributes["output_padding"]
        )
        if natural.out_spatial == spatial:
            return natural
        return ops.convolution_backprop_data(
            data, taps, spatial, **common, auto_pad=mode, output_padding=attributes["output_padding"]
        )
    # The pads at the begin are kept whatever the output's shape; the output is cropped or filled up at its end.
    whole = ops.convolution_backprop_data(data, taps, **common, auto_pad="valid").out_spatial
    begin = [0] * len(spatial) if mode == "valid" else list(begin)
    left = [n - b - y for n, b, y in zip(whole, begin, spatial, strict=True)]
    return ops.convolution_backprop_data(
        data,
        taps,
        **common,
        pads_begin=begin,
        pads_end=[max(each, 0) for each in left],
        output_padding=[max(-each, 0) for each in left],
    )
