"""`report`: what computes each layer of an optimized model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as functional
from torch import fx, nn
from torch.nn.modules.conv import _ConvNd

from ..errors import InputError
from .calls import ByKernel
from .convolution import CONVOLUTIONS
from .fusion import obstacle
from .layers import FusedConvolution

_LAYERS = (FusedConvolution, _ConvNd, nn.Linear)
_NAMES = ("Linear", *(f"Conv{kind}{rank}d" for kind in ("", "Transpose") for rank in (1, 2, 3)))
_HEAD = ("layer", "computes", "input", "by", "why")


@dataclass(frozen=True)
class Row:
    """One kind of input that a layer met.

    Parameters
    ----------
    layer
        The layer's name in the model.
    computes
        PyTorch's function and the steps after it.
    input
        The input's shape and type, empty if the layer met none.
    by
        The kernel's algorithm and target, or PyTorch's function.
    why
        Why it is no kernel, empty if it is one.
    """

    layer: str
    computes: str
    input: str
    by: str
    why: str


class Report(list[Row]):
    """The rows, which print as a table.

    Attributes
    ----------
    graphless
        By the paths of modules that are no graphs, why not: what they compute between their layers is not fused. The
        model's own path is empty.
    """

    graphless: dict[str, str]

    def __str__(self) -> str:
        cells = [_HEAD, *((row.layer, row.computes, row.input, row.by, row.why) for row in self)]
        widths = [max(len(line[column]) for line in cells) for column in range(len(_HEAD))]
        lines = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in cells]
        lines += [f"no graph of {path or 'the model'}: {why}" for path, why in self.graphless.items()]
        return "\n".join(lines)


def report(model: nn.Module) -> Report:
    """Return what computes each convolution and Linear of a model that :func:`tvmconv.torch.optimize` returned.

    A layer has a row for each kind of input that it met, or one if it met none. Calls in compiled code are not seen.
    One that no layer replaced has a row that says why, and so has a call of a function, as `F.conv2d`, in a graph.

    Raises
    ------
    InputError
        If the model has no such layer, or is no model.
    """
    if not isinstance(model, nn.Module):
        raise InputError(f"model is a {type(model).__name__}; give what tvmconv.torch.optimize returned")
    layers = [(name, module) for name, module in model.named_modules() if isinstance(module, _LAYERS)]
    if not any(isinstance(module, FusedConvolution) for _, module in layers):
        raise InputError("the model has no layer of tvmconv.torch.optimize; give what it returned")
    rows = Report()
    rows.graphless = next(layer.graphless for _, layer in layers if isinstance(layer, FusedConvolution))
    for name, layer in layers:
        if not isinstance(layer, FusedConvolution):
            rows.append(Row(name, type(layer).__name__, "", "PyTorch", obstacle(layer) or "it was not replaced"))
            continue
        computes = layer.extra_repr()
        found = layer.calls.found
        for key, how in found.items():
            given = f"{'x'.join(map(str, key[0]))} {str(key[2]).removeprefix('torch.')}"
            if isinstance(how, ByKernel):
                info: Any = how.kernel.info
                rows.append(Row(name, computes, given, f"{info.algorithm}, {info.target}", ""))
            else:
                rows.append(Row(name, computes, given, f"F.{layer.convolution.name}", how.reason))
        if not found:
            rows.append(Row(name, computes, "", f"F.{layer.convolution.name}", "it was not called with these weights"))
    rows += [
        Row(name, module.original_name, "", "PyTorch", "torch.jit compiled it")
        for name, module in model.named_modules()
        if isinstance(module, torch.jit.ScriptModule) and module.original_name in _NAMES
    ]
    rows += [
        row
        for name, module in model.named_modules()
        if isinstance(module, fx.GraphModule)
        for row in _calls(name, module)
    ]
    return rows


def _calls(name: str, graph: Any) -> list[Row]:
    """Return a row for each convolution that a graph calls as a function."""
    why = "its filter, its bias or its numbers are not the model's own, but computed in each call"
    return [
        Row(".".join(filter(None, (name, node.name))), node.target.__name__, "", f"F.{node.target.__name__}", why)
        for node in graph.graph.nodes
        if node.op == "call_function" and node.target in (*CONVOLUTIONS, functional.linear)
    ]
