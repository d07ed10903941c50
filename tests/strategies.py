"""Hypothesis strategies: convolutions as people write them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from tvmconv import ops
from tvmconv.problem import DATA_FORMATS, DTYPES, FILTER_FORMATS, OPS, Problem


@dataclass
class Call:
    """The arguments of :func:`ops.convolution` or :func:`ops.convolution_backprop_data`."""

    op: str
    data_shape: tuple[int, ...]
    filter_shape: tuple[int, ...]
    attributes: dict[str, Any] = field(default_factory=dict)

    def problem(self, **changes: Any) -> Problem:
        """Resolve it, with some attributes changed."""
        return getattr(ops, self.op)(self.data_shape, self.filter_shape, **{**self.attributes, **changes})


@st.composite
def calls(draw: st.DrawFn, *, largest: int = 9, channels: int = 3, bias: bool = True) -> Call:
    """Draw a valid call with explicit pads: extents up to `largest`, up to `channels` channels a group or groups of one."""
    op = draw(st.sampled_from(OPS))
    rank = draw(st.integers(1, 3))
    counts = st.integers(1, channels)

    def axes(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.lists(st.integers(low, high), min_size=rank, max_size=rank)))

    x, k = axes(1, largest), axes(1, 4)
    strides, output_padding = axes(1, 4), axes(0, 2)
    # Taps a stride apart, or several, meet other data than those that share no factor with it.
    dilations = tuple(draw(st.integers(1, 3) | st.just(stride)) for stride in strides)
    spans = [d * (kk - 1) + 1 for kk, d in zip(k, dilations, strict=True)]
    begin, end = (tuple(draw(st.integers(0, max(span + 1, 4))) for span in spans) for _ in range(2))
    if op == "convolution":
        end = tuple(max(pe, span - xx - pb) for pe, span, xx, pb in zip(end, spans, x, begin, strict=True))
    else:
        natural = [s * (xx - 1) + span for s, xx, span in zip(strides, x, spans, strict=True)]
        begin = tuple(min(pb, n - 1) for pb, n in zip(begin, natural, strict=True))
        end = tuple(min(pe, n - pb - 1) for pe, n, pb in zip(end, natural, begin, strict=True))
    kind = draw(st.sampled_from(["dense", "grouped", "depthwise"]))
    if kind == "depthwise":
        groups, inputs, outputs = draw(counts), 1, draw(st.integers(1, 3))
    else:
        groups = 1 if kind == "dense" else draw(st.integers(2, 3))
        inputs, outputs = draw(counts), draw(counts)
    data_format, filter_format = draw(st.sampled_from(DATA_FORMATS)), draw(st.sampled_from(FILTER_FORMATS))
    batch, in_channels, out_channels = draw(st.integers(1, 2)), inputs * groups, outputs * groups
    filter_i, filter_o = (inputs, out_channels) if op == "convolution" else (outputs, in_channels)
    attributes: dict[str, Any] = {
        "strides": strides,
        "dilations": dilations,
        "pads_begin": begin,
        "pads_end": end,
        "groups": groups,
        "data_format": data_format,
        "filter_format": filter_format,
        "dtype": draw(st.sampled_from(DTYPES)),
    }
    if op == "convolution_backprop_data":
        attributes["output_padding"] = output_padding
    if bias and draw(st.booleans()):
        attributes["bias_shape"] = (out_channels,)
    data_shape = (batch, *x, in_channels) if data_format == "NXC" else (batch, in_channels, *x)
    filter_shape = (*k, filter_i, filter_o) if filter_format == "XIO" else (filter_o, filter_i, *k)
    return Call(op, data_shape, filter_shape, attributes)
