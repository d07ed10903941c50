"""Average poolings as layers: each channel convolved by itself with a filter of ones, and scaled."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import prod
from typing import Any

import torch.nn.functional as functional
from torch import nn

from .channelwise import Channelwise, Graph, Unweighted
from .pools import for_each, options_of

_FUNCTIONS = {1: functional.avg_pool1d, 2: functional.avg_pool2d, 3: functional.avg_pool3d}
_POOLS = {
    **{pool: rank for rank, pool in _FUNCTIONS.items()},
    **{nn.AvgPool1d: 1, nn.AvgPool2d: 2, nn.AvgPool3d: 3},
}
_NAMES = ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override")
_MOST_TAPS = 27  # those of more are nearly of all pixels


@dataclass(frozen=True)
class Averaging(Channelwise):
    """An average pooling, whose filter is of ones: in bf16 there is no ninth."""

    @property
    def name(self) -> str:
        """Name of PyTorch's function."""
        return f"avg_pool{len(self.strides)}d"

    def by_torch(
        self, data: Any, weight: Any, bias: Any, residual: Any, slope: Any = None, output_padding: Any = None
    ) -> Any:
        """Return what PyTorch computes, however many channels there are."""
        return _FUNCTIONS[len(self.strides)](data, weight.shape[2:], self.strides, self.pads_begin)


def average(graph: Graph) -> None:
    """Let layers compute the average poolings of a graph, but those whose pixels are not counted alike.

    3x3 pixels of 288 channels at 35x35 in bf16 take two threads of a Zen 4 51 us within Inception v3, and PyTorch 179.
    """
    nodes = list(graph.traced.graph.nodes)
    times = Counter(node.target for node in nodes)
    for node in nodes:
        module = graph.modules[node.target] if node.op == "call_module" else None
        rank = _POOLS.get(node.target if module is None else type(module))
        if rank is None or (options := options_of(node, module, _NAMES)) is None:
            continue
        data = graph.shapes.get(node.args[0].name, ())
        if len(data) != rank + 2 or options["ceil_mode"] or options["divisor_override"]:
            continue
        taps = for_each(options["kernel_size"], rank)
        strides, pads = for_each(options["stride"] or taps, rank), for_each(options["padding"] or 0, rank)
        if prod(taps) > _MOST_TAPS or (any(pads) and options["count_include_pad"] is False):
            continue
        ones, none = (1,) * rank, (0,) * rank
        what = Averaging(False, strides, pads, pads, ones, none, data[1], "scale")
        path = f"average_{node.name}" if module is None or times[node.target] > 1 else node.target
        graph.call(node, path, Unweighted, what, taps, node.args[0])
