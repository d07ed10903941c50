"""The two operations with the attributes of models and users, resolved to a `Problem`.

Attributes, defaults, shape inference and validation, without arrays. The rules are those of the Convolution and
ConvolutionBackpropData specifications; docs/semantics.md lists where systems differ, and the choices of `same_rule`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

from .checks import axes, choice, integer, integers
from .dtypes import QUANTIZED
from .epilogue import parse_epilogue
from .errors import InvalidProblemError
from .problem import DATA_FORMATS, DTYPES, FILTER_FORMATS, Op, Problem

if TYPE_CHECKING:
    from typing_extensions import Required

AUTO_PADS = ("none", "same_upper", "same_lower", "valid")
CONVOLUTION_SAME_RULES = ("default", "pre_stride")
BACKPROP_SAME_RULES = ("default", "attribute_text", "keep_pads")


class ConvolutionAttributes(TypedDict, total=False):
    """Named arguments of every function that computes a Convolution; :func:`convolution` explains each."""

    strides: Required[Sequence[int]]
    dilations: Required[Sequence[int]]
    pads_begin: Sequence[int] | None
    pads_end: Sequence[int] | None
    auto_pad: str | None
    groups: int
    data_format: str
    filter_format: str | None
    same_rule: str
    weights_format: str | None
    epilogue: str | None
    dtype: str
    zero_point: int
    filter_zero_point: int
    bias_dtype: str


class BackpropDataAttributes(ConvolutionAttributes, total=False):
    """Named arguments of every function that computes a ConvolutionBackpropData: those of a Convolution, and its own."""

    output_padding: Sequence[int] | None


def convolution(
    data_shape: Sequence[int],
    filter_shape: Sequence[int],
    *,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads_begin: Sequence[int] | None = None,
    pads_end: Sequence[int] | None = None,
    auto_pad: str | None = None,
    groups: int = 1,
    data_format: str = "NXC",
    filter_format: str | None = None,
    same_rule: str = "default",
    dtype: str = "f32",
    bias_shape: Sequence[int] | None = None,
    weights_format: str | None = None,
    epilogue: str | None = None,
    zero_point: int = 0,
    filter_zero_point: int = 0,
    bias_dtype: str = "",
) -> Problem:
    """Resolve a Convolution.

    Parameters
    ----------
    data_shape
        ``(N, spatial..., IC)`` for NXC, ``(N, IC, spatial...)`` for NCX; one to three spatial axes.
    filter_shape
        ``(k..., IC/groups, OC)`` for XIO, ``(OC, IC/groups, k...)`` for OIX.
    strides, dilations
        One positive number per spatial axis (dilation 1: dense).
    pads_begin, pads_end
        One non-negative number per spatial axis. Required when `auto_pad` is absent, ignored when it is given.
    auto_pad
        ``None`` or ``"none"``, ``"same_upper"``, ``"same_lower"``, ``"valid"``, in any letter case.
    groups
        Number of independent groups; divides both channel counts.
    data_format, filter_format
        ``"NXC"`` or ``"NCX"``; ``"XIO"`` or ``"OIX"``. None: that of `weights_format`, else ``"XIO"``.
    same_rule
        ``"default"``: `same_*` pads so that the output has ``ceil(X / stride)`` elements.
        ``"pre_stride"``: so that the output before striding has X elements.
    dtype
        ``"f32"``, ``"f16"`` or ``"bf16"``; or the types of data, filter and output, such as ``"u8s8u8"``.
    bias_shape
        ``(OC,)`` when a bias is added.
    weights_format
        Another name of `filter_format`; an error if both are given and differ.
    epilogue
        The steps after the sum and its bias, such as ``"add-relu"`` (:mod:`tvmconv.epilogue`).
    zero_point, filter_zero_point, bias_dtype
        For integers: zero points of data and filter, and the bias' type (:class:`tvmconv.problem.Problem`).

    Returns
    -------
    Problem
        The canonical problem; ``problem.output_shape`` is the inferred shape.

    Raises
    ------
    InvalidProblemError
        Naming the attribute or input, its value and what is allowed.
    """
    filter_format = _one_format(filter_format, weights_format)
    data_shape, filter_shape = _shapes("convolution", data_shape, filter_shape, data_format, filter_format, dtype)
    batch, in_channels, x = _data_extents(data_shape, data_format)
    filter_inputs, out_channels, k = _filter_extents(filter_shape, filter_format)
    rank = len(x)
    strides = axes("strides", strides, rank, 1)
    dilations = axes("dilations", dilations, rank, 1)
    groups = integer("groups", groups, 1)
    mode = _auto_pad(auto_pad)
    choice("same_rule", same_rule, CONVOLUTION_SAME_RULES)
    _check_groups("data channels", in_channels, groups)
    _check_groups("filter output channels", out_channels, groups)
    if in_channels != filter_inputs * groups:
        raise InvalidProblemError(
            f"data has {in_channels} channels, but the filter takes {filter_inputs} in each of {groups} groups; "
            f"the filter's input channels must be {in_channels // groups} (data shape {list(data_shape)} {data_format}, filter shape {list(filter_shape)} {filter_format})"
        )
    spans = [_span(kk, d) for kk, d in zip(k, dilations, strict=True)]
    if mode == "none":
        begin, end = _required_pads(pads_begin, pads_end, rank, "")
    elif mode == "valid":
        begin = end = (0,) * rank
    else:
        begin, end = _halves(_same_pads(x, spans, strides, same_rule), extra_at_end=mode == "same_upper")
    out_spatial = _output_extents(x, k, dilations, strides, begin, end)
    bias = _check_bias(bias_shape, out_channels)
    return Problem(
        "convolution", batch, in_channels, x, out_channels, out_spatial, k, strides, dilations, begin, end,
        groups, data_format, filter_format, dtype, bias, parse_epilogue(epilogue), zero_point, filter_zero_point, bias_dtype,
    )  # fmt: skip


def convolution_backprop_data(
    data_shape: Sequence[int],
    filter_shape: Sequence[int],
    output_shape: Sequence[int] | None = None,
    *,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads_begin: Sequence[int] | None = None,
    pads_end: Sequence[int] | None = None,
    auto_pad: str | None = None,
    output_padding: Sequence[int] | None = None,
    groups: int = 1,
    data_format: str = "NXC",
    filter_format: str | None = None,
    same_rule: str = "default",
    dtype: str = "f32",
    bias_shape: Sequence[int] | None = None,
    weights_format: str | None = None,
    epilogue: str | None = None,
    zero_point: int = 0,
    filter_zero_point: int = 0,
    bias_dtype: str = "",
) -> Problem:
    """Resolve a ConvolutionBackpropData (transposed convolution, the input gradient).

    The filter is that of the forward convolution whose input gradient is computed: its O channels are those of `data`, its I
    channels the output channels of a group.

    Parameters
    ----------
    data_shape
        ``(N, spatial..., C)`` for NXC, ``(N, C, spatial...)`` for NCX.
    filter_shape
        ``(k..., M/groups, C)`` for XIO, ``(C, M/groups, k...)`` for OIX, M the output channels.
    output_shape
        Spatial extents of the output. The pads then follow from them, and `pads_begin` and `pads_end` are ignored, unless
        `same_rule` is ``"keep_pads"``.
    strides, dilations, pads_begin, pads_end, auto_pad, groups, data_format, filter_format, dtype
        As for :func:`convolution`; pads are not required when `output_shape` is given.
    output_padding
        One non-negative number per spatial axis, subtracted from the end pad; it may exceed the stride.
    same_rule
        Side of the odd pad with `output_shape`. ``"default"``: with `same_upper` the beginning, otherwise the end.
        ``"attribute_text"``: with `same_upper` the end, with `same_lower` the beginning. ``"keep_pads"``: as the default with
        `same_*`; otherwise `pads_begin` is kept (zeros for `valid`), and the output is cut off at `output_shape` or continued
        by zeros.
    bias_shape
        ``(M,)`` when a bias is added.
    weights_format
        Another name of `filter_format`; an error if both are given and differ.
    epilogue
        The steps after the sum and its bias, such as ``"add-relu"`` (:mod:`tvmconv.epilogue`).
    zero_point, filter_zero_point, bias_dtype
        For integers: zero points of data and filter, and the bias' type (:class:`tvmconv.problem.Problem`).

    Returns
    -------
    Problem
        The canonical problem.

    Raises
    ------
    InvalidProblemError
        Naming the attribute or input, its value and what is allowed.
    """
    op: Op = "convolution_backprop_data"
    filter_format = _one_format(filter_format, weights_format)
    data_shape, filter_shape = _shapes(op, data_shape, filter_shape, data_format, filter_format, dtype)
    batch, in_channels, x = _data_extents(data_shape, data_format)
    group_outputs, filter_outputs, k = _filter_extents(filter_shape, filter_format)
    rank = len(x)
    strides = axes("strides", strides, rank, 1)
    dilations = axes("dilations", dilations, rank, 1)
    groups = integer("groups", groups, 1)
    mode = _auto_pad(auto_pad)
    choice("same_rule", same_rule, BACKPROP_SAME_RULES)
    extra = (0,) * rank if output_padding is None else axes("output_padding", output_padding, rank, 0)
    if in_channels != filter_outputs:
        raise InvalidProblemError(
            f"data has {in_channels} channels, but the filter's O is {filter_outputs}; they must be equal "
            f"(data shape {list(data_shape)} {data_format}, filter shape {list(filter_shape)} {filter_format})"
        )
    _check_groups("data channels", in_channels, groups)
    out_channels = group_outputs * groups
    natural = [s * (xx - 1) + _span(kk, d) for s, xx, kk, d in zip(strides, x, k, dilations, strict=True)]
    if output_shape is None:
        begin, end = (0,) * rank, (0,) * rank
        if mode == "none":
            begin, end = _required_pads(pads_begin, pads_end, rank, " or output_shape")
        out_spatial = _transposed_extents(natural, begin, end, extra)
    else:
        out_spatial = axes("output_shape", output_shape, rank, 1)
        totals = [max(n - y + e, 0) for n, y, e in zip(natural, out_spatial, extra, strict=True)]
        begin = _pads_of_output(totals, mode, same_rule, pads_begin)
    ends = tuple(max(n - b - y, 0) for n, b, y in zip(natural, begin, out_spatial, strict=True))
    bias = _check_bias(bias_shape, out_channels)
    return Problem(
        op, batch, in_channels, x, out_channels, out_spatial, k, strides, dilations, begin, ends,
        groups, data_format, filter_format, dtype, bias, parse_epilogue(epilogue), zero_point, filter_zero_point, bias_dtype,
    )  # fmt: skip


def _span(kernel: int, dilation: int) -> int:
    """Return the extent of the input that a dilated filter covers (KE)."""
    return dilation * (kernel - 1) + 1


def _halves(totals: Sequence[int], extra_at_end: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
    small, large = tuple(t // 2 for t in totals), tuple(t - t // 2 for t in totals)
    return (small, large) if extra_at_end else (large, small)


def _same_pads(x: Sequence[int], spans: Sequence[int], strides: Sequence[int], same_rule: str) -> list[int]:
    """Return the sum of both pads along each axis for `same_*`."""
    if same_rule == "pre_stride":
        return [max(span - 1, 0) for span in spans]
    return [max((-(-xx // s) - 1) * s + span - xx, 0) for xx, s, span in zip(x, strides, spans, strict=True)]


def _output_extents(
    x: Sequence[int],
    kernel: Sequence[int],
    dilations: Sequence[int],
    strides: Sequence[int],
    begin: Sequence[int],
    end: Sequence[int],
) -> tuple[int, ...]:
    """Return a convolution's spatial output extents; refuse a filter larger than the padded input."""
    extents = []
    for axis, (xx, kk, dilation, stride) in enumerate(zip(x, kernel, dilations, strides, strict=True)):
        room, span = xx + begin[axis] + end[axis], _span(kk, dilation)
        if span > room:
            raise InvalidProblemError(
                f"spatial axis {axis}: the filter spans {span} (kernel {kk}, dilation {dilation}), more than "
                f"the input {xx} with pads {begin[axis]} and {end[axis]}; use larger pads or a smaller filter"
            )
        extents.append((room - span) // stride + 1)
    return tuple(extents)


def _pads_of_output(totals: Sequence[int], mode: str, same_rule: str, pads_begin: object) -> tuple[int, ...]:
    """Return the beginning pads of a transposed convolution whose output shape is given; `totals` sum both pads."""
    if same_rule == "keep_pads" and mode == "valid":
        return (0,) * len(totals)
    if same_rule == "keep_pads" and mode == "none":
        if pads_begin is None:
            raise InvalidProblemError("pads_begin is missing; same_rule='keep_pads' keeps it beside output_shape")
        return axes("pads_begin", pads_begin, len(totals), 0)
    extra_at_end = mode != "same_lower" if same_rule == "attribute_text" else mode != "same_upper"
    return _halves(totals, extra_at_end)[0]


def _transposed_extents(
    natural: Sequence[int], begin: Sequence[int], end: Sequence[int], extra: Sequence[int]
) -> tuple[int, ...]:
    """Return a transposed convolution's spatial output extents; `natural` are those without pads."""
    extents = tuple(n - b - e + more for n, b, e, more in zip(natural, begin, end, extra, strict=True))
    for axis, y in enumerate(extents):
        if y < 1:
            raise InvalidProblemError(
                f"spatial axis {axis}: pads_begin {begin[axis]} and pads_end {end[axis]} leave {y} of the {natural[axis]} outputs; "
                "use smaller pads"
            )
    return extents


def _auto_pad(value: object) -> str:
    if value is None:
        return "none"
    if not isinstance(value, str) or value.lower() not in AUTO_PADS:
        raise InvalidProblemError(f"auto_pad is {value!r}; allowed: None, {', '.join(AUTO_PADS)} (any letter case)")
    return value.lower()


def _required_pads(begin: object, end: object, rank: int, or_else: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    for name, value in (("pads_begin", begin), ("pads_end", end)):
        if value is None:
            raise InvalidProblemError(f"{name} is missing; give pads_begin and pads_end, or auto_pad{or_else}")
    return axes("pads_begin", begin, rank, 0), axes("pads_end", end, rank, 0)


def _shapes(
    op: str, data_shape: object, filter_shape: object, data_format: str, filter_format: str, dtype: str
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Check formats, type and ranks; return the shapes of data and filter as plain tuples."""
    choice("data_format", data_format, DATA_FORMATS)
    choice("filter_format", filter_format, FILTER_FORMATS)
    choice("dtype", dtype, (*DTYPES, *QUANTIZED))
    data = integers("data shape", data_shape, 0)
    taps = integers("filter shape", filter_shape, 0)
    if not 3 <= len(data) <= 5:
        raise InvalidProblemError(
            f"data has rank {len(data)} (shape {list(data)}); {op} takes rank 3, 4 or 5 (one to three spatial axes)"
        )
    if len(taps) != len(data):
        raise InvalidProblemError(
            f"the filter has rank {len(taps)} (shape {list(taps)}), data has rank {len(data)} (shape {list(data)}); they must be equal"
        )
    return data, taps


def _data_extents(shape: tuple[int, ...], data_format: str) -> tuple[int, int, tuple[int, ...]]:
    """Return (batch, channels, spatial extents)."""
    batch, *rest = shape
    channels, spatial = (rest[-1], rest[:-1]) if data_format == "NXC" else (rest[0], rest[1:])
    if min(spatial) < 1:
        raise InvalidProblemError(f"data has shape {list(shape)}; every spatial extent must be at least 1")
    return batch, channels, tuple(spatial)


def _one_format(filter_format: str | None, weights_format: str | None) -> str:
    """Return the filter's format, an attribute of two names."""
    if filter_format is None:
        filter_format = "XIO" if weights_format is None else weights_format
        choice("filter_format" if weights_format is None else "weights_format", filter_format, FILTER_FORMATS)
    elif weights_format not in (None, filter_format):
        raise InvalidProblemError(
            f"filter_format is {filter_format!r} and weights_format {weights_format!r}; they are one attribute: give one of them"
        )
    return filter_format


def _filter_extents(shape: tuple[int, ...], filter_format: str) -> tuple[int, int, tuple[int, ...]]:
    """Return the filter's (I, O, taps per spatial axis)."""
    if filter_format == "XIO":
        return shape[-2], shape[-1], shape[:-2]
    return shape[1], shape[0], shape[2:]


def _check_groups(name: str, channels: int, groups: int) -> None:
    if channels % groups:
        raise InvalidProblemError(f"{name} are {channels}, which groups={groups} does not divide")


def _check_bias(bias_shape: Sequence[int] | None, out_channels: int) -> bool:
    if bias_shape is None:
        return False
    shape = integers("bias shape", bias_shape, 0)
    if shape != (out_channels,):
        raise InvalidProblemError(
            f"bias has shape {list(shape)}; it must be [{out_channels}], one value per output channel"
        )
    return True
