"""Networks with random weights by which values neither die nor explode, so that answers can be compared."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch import nn

_WEIGHTED = (nn.modules.conv._ConvNd, nn.Linear)
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def load(network: str) -> tuple[nn.Module, Any]:
    """Return a network for inference, a module of this package, and an input, always the same."""
    module = import_module(f"{__package__}.{network}")
    torch.manual_seed(0)
    return settle(module.model(), module.example()), module.example()


@torch.no_grad()  # type: ignore[untyped-decorator]
def settle(model: nn.Module, example: Any) -> nn.Module:
    """Return a network for inference, with other weights: each layer's output on the example, or on a tuple of inputs, has unit variance.

    Source: Mishkin and Matas, "All you need is a good init", 2016. The statistics of BatchNorm are those of some training.
    """
    for module in model.modules():
        if isinstance(module, _NORMS):
            module.running_mean.normal_(0, 0.3)
            module.running_var.uniform_(0.5, 1.5)
            module.weight.uniform_(0.5, 1.5)
            module.bias.normal_(0, 0.3)
    hooks = [
        module.register_forward_hook(_to_unit_variance) for module in model.modules() if isinstance(module, _WEIGHTED)
    ]
    model.eval()(*example) if isinstance(example, tuple) else model.eval()(example)
    for hook in hooks:
        hook.remove()
    return model


def _to_unit_variance(module: Any, _: Any, output: Any) -> Any:
    deviation = output.std(unbiased=False)
    if not deviation > 0:  # of a single number, or of the same ones
        return output
    for parameter in module.parameters():
        parameter /= deviation
    return output / deviation
