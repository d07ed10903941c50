"""Quantize a PyTorch model as pt2e does, whose quantizers are torchao's: by observed ranges, with its operators in the graph."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import torch
from torch import fx, nn
from torch.ao.quantization.fx import _decomposed as _registered  # noqa: F401 - of operators, which it defines

aten, pt2e = torch.ops.aten, torch.ops.quantized_decomposed
# Operators whose first arguments are quantized, and whose second is a weight; of a transposed convolution its second axis are outputs.
_WEIGHTED = {
    **{getattr(aten, f"conv{rank}d").default: 0 for rank in (1, 2, 3)},
    aten.conv_transpose1d.default: 1,
    aten.conv_transpose2d.input: 1,
    aten.linear.default: 0,
    aten.matmul.default: 1,
}
_OTHERS = (
    aten.add.Tensor,
    aten.add_.Tensor,
    aten.mul.Tensor,
    aten.cat.default,
    aten.max_pool2d.default,
    aten.avg_pool2d.default,
    aten.adaptive_avg_pool2d.default,
)
# Operators that the number before and after has one scale of.
_SAME = (aten.max_pool2d.default,)


class _Observer(fx.Interpreter):  # type: ignore[misc]
    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.seen: dict[fx.Node, Any] = {}

    def run_node(self, n: fx.Node) -> Any:
        self.seen[n] = super().run_node(n)
        return self.seen[n]


def quantize(
    model: nn.Module, args: tuple[Any, ...], draw: random.Random, dtype: torch.dtype, most: int | None = None
) -> fx.GraphModule:
    """Return a model's graph with quantizers to `dtype`, whose largest step is `most` (pt2e's reduced range), and integers for weights."""
    module = torch.export.export(model.eval(), args, strict=False).module()
    with torch.no_grad():
        (observer := _Observer(module)).run(*args)
    quantizers = _Quantizers(module, observer.seen, draw, dtype, most)
    for node in list(module.graph.nodes):
        if node.op != "call_function" or (node.target not in _WEIGHTED and node.target not in _OTHERS):
            continue
        if node.target in _WEIGHTED:
            data, weight, *rest = node.args
            axis = _WEIGHTED[node.target]
            node.args = (quantizers.between(data, node), quantizers.fixed(weight, axis, node), *rest)
        else:
            node.args = fx.map_arg(node.args, partial(quantizers.between, reader=node))
    for node in module.graph.nodes:
        if node.op == "output":
            kept = [draw.random() < 0.5 for _ in node.args[0]] if isinstance(node.args[0], (tuple, list)) else []
            if any(kept):
                pairs = zip(node.args[0], kept, strict=True)
                node.args = (tuple(quantizers.between(each, node) if keep else each for each, keep in pairs),)
    module.graph.lint()
    module.recompile()
    return module


class _Quantizers:
    """Quantizers of a graph's tensors, by the values that these had, each drawn once."""

    def __init__(
        self,
        module: fx.GraphModule,
        seen: dict[fx.Node, Any],
        draw: random.Random,
        dtype: torch.dtype,
        most: int | None,
    ) -> None:
        bounds = torch.iinfo(dtype)
        self._module, self._seen, self._draw, self._dtype = module, seen, draw, dtype
        self._low, self._high = bounds.min, bounds.max if most is None else most
        self._numbers: dict[fx.Node, tuple[Any, ...]] = {}
        self._rounded: dict[fx.Node, fx.Node] = {}

    def between(self, node: fx.Node, reader: fx.Node) -> fx.Node:
        """Return a node's dequantized result for a reader."""
        if node.op == "get_attr":
            return node
        graph, given = self._module.graph, self._numbers_of(node)
        if node not in self._rounded:
            with graph.inserting_after(node):
                self._rounded[node] = graph.call_function(pt2e.quantize_per_tensor.default, (node, *given))
        with graph.inserting_before(reader):
            return graph.call_function(pt2e.dequantize_per_tensor.default, (self._rounded[node], *given))

    def fixed(self, node: fx.Node, axis: int, reader: fx.Node) -> fx.Node:
        """Return a weight as dequantized integers, with a scale for each channel along an axis."""
        weight, module = self._seen[node].detach(), self._module
        axis = axis if weight.ndim > axis else 0
        others = [each for each in range(weight.ndim) if each != axis]
        scales = weight.abs().amax(others).clamp(min=1e-6) / 127
        shape = [-1 if each == axis else 1 for each in range(weight.ndim)]
        name = f"_frozen_param{len(list(module.buffers()))}"
        values = {
            name: (weight / scales.reshape(shape)).round().clamp(-127, 127).to(torch.int8),
            f"{name}_scale": scales,
            f"{name}_zero": torch.zeros(len(scales), dtype=torch.int64),
        }
        with module.graph.inserting_before(reader):
            for each, value in values.items():
                module.register_buffer(each, value)
            arguments = (*map(module.graph.get_attr, values), axis, -127, 127, torch.int8)
            return module.graph.call_function(pt2e.dequantize_per_channel.default, arguments)

    def _numbers_of(self, node: fx.Node) -> tuple[Any, ...]:
        """Return a node's scale, zero point and bounds."""
        if node.target in _SAME and isinstance(node.args[0], fx.Node):
            node = node.args[0].args[0].args[0]  # the node that is quantized before it
        if node not in self._numbers:
            value, low, high = self._seen[node], self._low, self._high
            least, greatest = min(float(value.min()), 0.0), max(float(value.max()), 0.0)
            steps = max(greatest - least, 1e-3) / (high - low)
            scale = float(torch.tensor(steps * self._draw.uniform(0.7, 1.1)))
            self._numbers[node] = (scale, min(max(round(low - least / scale), low), high), low, high, self._dtype)
        return self._numbers[node]
