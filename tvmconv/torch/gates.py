"""Squeeze and excitation by kernels: means over all pixels, and products with a factor for each channel.

PyTorch has threads of its own, which each of its operators between two kernels wakes. Two threads of a Zen 5, in
microseconds, within networks in bf16: the mean of 480 channels at 14x14 13 and 3, their product with the gate 12 and 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import torch

from ..problem import Problem
from .channelwise import Channelwise, Graph, Unweighted
from .convolution import DTYPES
from .folding import PRODUCTS
from .operators import option

# Along each axis, the taps of a kernel that sums them one after the other: PyTorch sums more by several threads.
_MOST_TAPS = 256


class Gated(Channelwise):
    """What a gate computes, which PyTorch can write to a tensor that it is given."""

    def obstacle(self, data: Any, residual: Any) -> str | None:
        """Return why PyTorch computes data, whatever kernels there are; None if a kernel may."""
        return None if residual is None else self.refuses(residual, data.shape)

    def write(self, data: Any, *, residual: Any = None, out: Any = None) -> Any:
        """Return what PyTorch computes, into `out`."""
        raise NotImplementedError

    def by_torch(
        self, data: Any, weight: Any, bias: Any, residual: Any, slope: Any = None, output_padding: Any = None
    ) -> Any:
        """Return what PyTorch computes."""
        return self.write(data, residual=residual)


@dataclass(frozen=True)
class Mean(Gated):
    """The mean over some of a tensor's axes, however long they are: each channel convolved with ones, and scaled."""

    over: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """Name of PyTorch's function."""
        return "mean"

    def filter(self, weight: Any, data: Any) -> Any:
        """Return the ones that data of this shape are convolved with."""
        return weight.expand(*weight.shape[:2], *self._taps(data.shape))

    def output_shape(self, data: Any, weight: Any) -> tuple[int, ...]:
        """Return the shape of the output."""
        taps = self._taps(data)
        return (*data[:2], *(x // tap for x, tap in zip(data[2:], taps, strict=True)))

    def problem(self, data: Any, weight: Any, bias: bool, dtype: str) -> Problem:
        """Return the Problem for data of this shape."""
        return super().problem(data, (*weight[:2], *self._taps(data)), bias, dtype)

    def obstacle(self, data: Any, residual: Any) -> str | None:
        """Return why PyTorch computes data, whatever kernels there are; None if a kernel may."""
        numbers = prod(self._taps(data.shape))
        return None if numbers <= _MOST_TAPS else f"each is of {numbers} numbers, and kernels sum at most {_MOST_TAPS}"

    def write(self, data: Any, *, residual: Any = None, out: Any = None) -> Any:
        """Return what PyTorch computes, into `out`."""
        return torch.mean(data, self.over, keepdim=True, out=out)

    def _taps(self, data: Any) -> tuple[int, ...]:
        over = [axis % len(data) for axis in self.over]
        return tuple(x if axis in over else 1 for axis, x in enumerate(data[2:], 2))


@dataclass(frozen=True)
class Scaling(Gated):
    """The product with a factor for each channel: each channel convolved with one tap, its factor. They stand in for the residual."""

    @property
    def name(self) -> str:
        """Name of PyTorch's function."""
        return "mul"

    @property
    def filter_is_residual(self) -> bool:
        """Whether the filter is new in each call."""
        return True

    def refuses(self, residual: Any, shape: Any) -> str | None:
        """Return why a kernel cannot take these factors, None if it can."""
        if tuple(residual.shape) != (1, shape[1], *(1,) * len(self.strides)):
            return f"the factors have the shape {tuple(residual.shape)}"
        return None if residual.stride(1) == 1 or shape[1] == 1 else "the factors do not follow each other"

    def write(self, data: Any, *, residual: Any = None, out: Any = None) -> Any:
        """Return what PyTorch computes, into `out`."""
        return torch.mul(data, residual, out=out)


class Gate(Unweighted):
    """A mean or a product with factors by a kernel where its data are as kernels leave them, else by PyTorch."""

    convolution: Gated

    def forward(self, input: Any, output_size: Any = None, *, residual: Any = None) -> Any:
        """Compute the layer; `residual` are the factors."""
        if torch.compiler.is_compiling():
            return self._traced(input, residual)
        reason = self._refused(input, residual)
        if reason is not None:
            return self.calls.by_torch(reason, input, self.weight, None, residual)
        return super().forward(input, residual=residual)

    def _refused(self, data: Any, factors: Any) -> str | None:
        """Return why PyTorch computes data, whatever kernels there are."""
        if data.device.type != "cpu":
            return f"it is on {data.device}"
        if data.dtype not in DTYPES or not all(
            each.dtype == data.dtype for each in (factors, self.weight) if each is not None
        ):
            return f"it is of {data.dtype}"
        if not self.convolution.takes(data.dim()) or not self.convolution.layout.is_ready(data):
            return "its channels do not lie last"
        return self.convolution.obstacle(data, factors)


def gate(graph: Graph) -> None:
    """Let layers compute a graph's means over all pixels, and its products of those with a factor for each channel."""
    nodes, shapes = graph.traced.graph, graph.shapes

    def call(node: Any, what: Gated, *arrays: Any) -> None:
        graph.call(node, f"{what.name}_by_{node.name}", Gate, what, what.strides, *arrays)  # one tap

    for node in list(nodes.nodes):
        if (data := _averaged(node, shapes)) is not None:
            shape, keeps, axes = shapes[data.name], option(node, 2, "keepdim", False), _axes(node)
            # Along the last axis, then along the others: both have threads, and read what lies in a row.
            parts = [over for over in (axes[-1:], axes[:-1]) if over]
            for number, over in enumerate(parts, 1):
                mean = node
                if number < len(parts) or not keeps:
                    with nodes.inserting_before(node):
                        mean = nodes.call_module("", ())
                call(mean, Mean(**_nothing_else(shape), epilogue="scale", over=over), data)
                data = mean
            if not keeps:
                node.op, node.target, node.args, node.kwargs = "call_method", "squeeze", (data, axes), {}
        elif (scaled := _scaled(node, shapes)) is not None:
            call(node, Scaling(**_nothing_else(shapes[scaled[0].name])), *scaled)


def _averaged(node: Any, shapes: dict[str, tuple[int, ...]]) -> Any:
    """Return whose pixels a node takes the mean of, None if it does something else."""
    if node.target not in (torch.mean, "mean") or node.op not in ("call_function", "call_method"):
        return None
    if not node.args or not set(node.kwargs) <= {"dim", "keepdim"} or node.all_input_nodes != [node.args[0]]:
        return None
    shape = shapes.get(node.args[0].name, ())
    if not 3 <= len(shape) <= 5 or max(prod(shape[2:-1]), shape[-1]) > _MOST_TAPS or max(shape[2:]) == 1:
        return None
    return node.args[0] if [axis % len(shape) for axis in _axes(node)] == [*range(2, len(shape))] else None


def _axes(node: Any) -> tuple[int, ...]:
    """Return the axes of a mean in order, counted as the model counts them."""
    axes = option(node, 1, "dim")
    return () if axes is None else (axes,) if isinstance(axes, int) else tuple(sorted(axes))


def _scaled(node: Any, shapes: dict[str, tuple[int, ...]]) -> tuple[Any, Any] | None:
    """Return what a node multiplies by factors, and these; None if it does something else."""
    if node.target not in PRODUCTS or node.kwargs or len(node.args) != 2 or len(node.all_input_nodes) != 2:
        return None
    for data, factors in (node.args, node.args[::-1]):
        shape, other = shapes.get(data.name, ()), shapes.get(factors.name, ())
        ones = (1,) * len(shape[2:])
        if 3 <= len(shape) <= 5 and other[1:] == (shape[1], *ones) and other[0] in (1, shape[0]) and shape[2:] != ones:
            return data, factors
    return None


def _nothing_else(shape: tuple[int, ...]) -> dict[str, Any]:
    """Return the fields of a convolution that goes over data of a shape, channel by channel, and has one tap."""
    ones, none = (1,) * len(shape[2:]), (0,) * len(shape[2:])
    fields = {"strides": ones, "pads_begin": none, "pads_end": none, "dilations": ones, "output_padding": none}
    return {"transposed": False, **fields, "groups": shape[1]}
