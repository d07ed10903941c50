"""Quantize a PyTorch model as pt2e does, whose quantizers are torchao's: by observed ranges, with its operators in the graph."""

from __future__ import annotations

import random
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
    bounds = torch.iinfo(dtype)
    low, high = bounds.min, bounds.max if most is None else most
    numbers: dict[fx.Node, tuple[Any, ...]] = {}
    rounded: dict[fx.Node, fx.Node] = {}
    graph = module.graph

    def numbers_of(node: fx.Node) -> tuple[Any, ...]:
        if node.target in _SAME and isinstance(node.args[0], fx.Node):
            node = node.args[0].args[0].args[0]  # of what is quantized
        if node not in numbers:
            value = observer.seen[node]
            least, greatest = min(float(value.min()), 0.0), max(float(value.max()), 0.0)
            scale = float(torch.tensor(max(greatest - least, 1e-3) / (high - low) * draw.uniform(0.7, 1.1)))
            numbers[node] = (scale, min(max(round(low - least / scale), low), high), low, high, dtype)
        return numbers[node]

    def between(node: fx.Node, reader: fx.Node) -> fx.Node:
        """Return what a node's answer is rounded to, for a reader."""
        if node.op == "get_attr":
            return node
        given = numbers_of(node)
        if node not in rounded:
            with graph.inserting_after(node):
                rounded[node] = graph.call_function(pt2e.quantize_per_tensor.default, (node, *given))
        with graph.inserting_before(reader):
            return graph.call_function(pt2e.dequantize_per_tensor.default, (rounded[node], *given))

    def fixed(node: fx.Node, axis: int, reader: fx.Node) -> fx.Node:
        weight = observer.seen[node].detach()
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
        with graph.inserting_before(reader):
            for each, value in values.items():
                module.register_buffer(each, value)
            attributes = [graph.get_attr(each) for each in values]
            return graph.call_function(pt2e.dequantize_per_channel.default, (*attributes, axis, -127, 127, torch.int8))

    for node in list(graph.nodes):
        if node.op != "call_function" or (node.target not in _WEIGHTED and node.target not in _OTHERS):
            continue
        if node.target in _WEIGHTED:
            args_ = list(node.args)
            args_[0] = between(args_[0], node)
            args_[1] = fixed(args_[1], _WEIGHTED[node.target], node)
            node.args = tuple(args_)
        else:
            node.args = fx.map_arg(node.args, lambda each, reader=node: between(each, reader))
    for node in graph.nodes:
        if node.op == "output":
            kept = [draw.random() < 0.5 for _ in node.args[0]] if isinstance(node.args[0], (tuple, list)) else []
            if any(kept):
                node.args = (
                    tuple(between(each, node) if keep else each for each, keep in zip(node.args[0], kept, strict=True)),
                )
    graph.lint()
    module.recompile()
    return module
