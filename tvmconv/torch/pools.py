"""`MaxPool`: a max pooling of a plan, without the indices that PyTorch finds beside the maxima."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as functional
from torch import nn

from . import native
from .layout import CHANNELS_SECOND

_POOLS = {
    **dict.fromkeys((nn.MaxPool1d, functional.max_pool1d), 1),
    **dict.fromkeys((nn.MaxPool2d, functional.max_pool2d), 2),
    **dict.fromkeys((nn.MaxPool3d, functional.max_pool3d), 3),
}
_NAMES = ("kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices")


@dataclass(frozen=True)
class MaxPool:
    """A max pooling of data with channels last.

    Attributes
    ----------
    data
        The node of what is pooled.
    axes
        Of each spatial axis the inputs, the outputs, the taps, the stride, the padding and the dilation.
    """

    data: Any
    axes: tuple[native.PoolAxis, ...]

    def bind(self, data: Any, out: Any) -> Callable[[], None]:
        """Return what pools `data` to `out`, whatever `data` holds by then."""
        return native.max_pool(data, self.axes, out)


def max_pool_of(root: Any, node: Any, met: Mapping[Any, Any]) -> MaxPool | None:
    """Return the max pooling that a node of a graph is; None if it is something else, or PyTorch's to compute.

    `met` tells of the nodes of a plan what was seen of their values.
    """
    module = root.get_submodule(node.target) if node.op == "call_module" else None
    rank = _POOLS.get(node.target if module is None else type(module))
    options = None if rank is None else options_of(node, module, _NAMES)
    if rank is None or options is None:
        return None
    data, out = met.get(node.args[0]), met[node]
    if data is None or len(data.shape) != rank + 2:
        return None
    if 0 in out.shape or any(each.strides != CHANNELS_SECOND.strides(each.shape) for each in (data, out)):
        return None
    taps = for_each(options["kernel_size"], rank)
    strides, pads = for_each(options["stride"] or taps, rank), for_each(options["padding"] or 0, rank)
    dilations = for_each(options["dilation"] or 1, rank)
    axes = tuple(zip(data.shape[2:], out.shape[2:], taps, strides, pads, dilations, strict=True))
    return MaxPool(node.args[0], axes) if native.pools(data.dtype, axes) else None


def options_of(node: Any, module: Any, names: Sequence[str]) -> dict[str, Any] | None:
    """Return what a pooling is given beside its data, a module or a function (`module` None); what it is not given is None.

    None if its data is not its first argument, tensors are among the others, or a hook looks at it.
    """
    if node.all_input_nodes != [*node.args[:1]]:
        return None
    if module is None:
        given = dict(zip(names, node.args[1:], strict=False)) | node.kwargs
    else:
        given = None if module._forward_hooks or module._forward_pre_hooks else vars(module)
    return None if given is None else {name: given.get(name) for name in names}


def for_each(option: Any, rank: int) -> tuple[int, ...]:
    """Return an option of a pooling for each axis."""
    option = tuple(option) if isinstance(option, (tuple, list)) else (option,)
    return option if len(option) == rank else option * rank
