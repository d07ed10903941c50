"""Pads in graphs: zeros join a convolution's own pads, all others are written as kernels read data, in one pass.

PyTorch pads a transposed view element by element: one more at each end of 64 channels of 4096 samples, reflected, takes two
threads of a Zen 4 209 us, and our function 31.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as functional
from torch import nn

from . import native
from .convolution import DTYPES, Convolution
from .layout import CHANNELS_SECOND

_PLAIN = (torch.Tensor, nn.Parameter)
# By the module that pads: how.
_MODULES: dict[Any, str] = {
    getattr(nn, f"{name}Pad{rank}d"): mode
    for name, mode in (
        ("Zero", "constant"), ("Constant", "constant"), ("Circular", "circular"), ("Reflection", "reflect"),
        ("Replication", "replicate"),
    )
    for rank in (1, 2, 3)
}  # fmt: skip


@dataclass(frozen=True)
class Padding:
    """How a node pads data.

    Parameters
    ----------
    pad
        As `torch.nn.functional.pad` takes it: of the last axis first. Numbers, or nodes that compute them.
    mode, value
        As there.
    """

    pad: Any
    mode: str
    value: float = 0.0

    def of_axes(self, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Return the pads before and after each of the last `rank` axes, None if they are no numbers or of other axes, too."""
        if not isinstance(self.pad, (tuple, list)) or not all(type(each) is int for each in self.pad):
            return None
        return by_axis(self.pad, rank)


def by_axis(pad: Sequence[int], rank: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return the pads before and after each of the last `rank` axes; None if others are padded, too."""
    if len(pad) % 2 or any(pad[2 * rank :]):
        return None
    numbers = (*pad[: 2 * rank], *(0,) * (2 * rank - len(pad)))
    return numbers[-2::-2], numbers[::-2]


def padding_of(node: Any, modules: Mapping[str, nn.Module]) -> Padding | None:
    """Return how a node pads its first argument, None if it does something else."""
    if not node.args or not hasattr(node.args[0], "op"):
        return None
    if node.op == "call_module":
        module: Any = modules[node.target]
        if isinstance(module, Pad):
            return Padding(node.args[1], module.mode, module.value)
        if type(module) not in _MODULES or module._forward_hooks or module._forward_pre_hooks or len(node.args) != 1:
            return None
        return Padding(tuple(module.padding), _MODULES[type(module)], getattr(module, "value", 0.0))
    if node.op != "call_function" or node.target is not functional.pad:
        return None
    given = {**dict(zip(("input", "pad", "mode", "value"), node.args, strict=False)), **node.kwargs}
    mode, value = given.get("mode", "constant"), given.get("value")
    if mode not in native.PAD_MODES or not (value is None or type(value) in (int, float)) or "pad" not in given:
        return None
    return Padding(given["pad"], mode, 0.0 if value is None else float(value))


class Pad(nn.Module):  # type: ignore[misc]
    """`torch.nn.functional.pad`, whose result has its channels last in memory.

    Parameters
    ----------
    mode, value
        As there.
    """

    def __init__(self, mode: str, value: float = 0.0) -> None:
        super().__init__()
        self.mode, self.value = mode, value

    def forward(self, input: Any, pad: Any, *, out: Any = None) -> Any:
        """Pad a tensor; with `out`, into that."""
        if out is None:
            return padded(input, pad, self.mode, self.value)
        self.bind(input, pad, out=out)()
        return out

    def bind(self, input: Any, pad: Any, *, out: Any) -> Callable[[], Any]:
        """Return what pads a tensor that stays where it is into one that is given."""
        pads = by_axis(pad, input.dim() - 2)
        made = None if pads is None else native.pad(input, *pads, self.mode, self.value, out)
        return made or (lambda: out.copy_(_by_torch(input, pad, self.mode, self.value)))

    def extra_repr(self) -> str:
        """Return how it pads, for the module's text."""
        return self.mode if self.mode != "constant" else f"{self.mode} {self.value}"


def padded(data: Any, pad: Any, mode: str, value: float = 0.0) -> Any:
    """Return what `torch.nn.functional.pad` does, with its channels last in memory where kernels may read it."""
    if torch.compiler.is_compiling() or type(data) not in _PLAIN or not 3 <= data.dim() <= 5:
        return _by_torch(data, pad, mode, value)
    pads = by_axis(pad, data.dim() - 2)
    if pads is None or data.dtype not in DTYPES or data.device.type != "cpu" or not _is_at_once(data):
        return _by_torch(data, pad, mode, value)
    sizes = (sum(each) for each in zip(data.shape[2:], *pads, strict=True))
    shape = (*data.shape[:2], *sizes)
    if min(shape) < 1:
        return _by_torch(data, pad, mode, value)
    out = torch.empty_strided(shape, CHANNELS_SECOND.strides(shape), dtype=data.dtype)
    write = native.pad(data, *pads, mode, value, out)
    if write is None:
        return native.laid_out(CHANNELS_SECOND, _by_torch(data, pad, mode, value))
    write()
    return out


def _is_at_once(data: Any) -> bool:
    """Whether a tensor is there, and needs no gradient."""
    if (
        torch._C._len_torch_dispatch_stack()
        or torch.jit.is_tracing()
        or (torch.is_grad_enabled() and data.requires_grad)
    ):
        return False
    return torch._C._functorch.maybe_current_level() is None


def _by_torch(data: Any, pad: Any, mode: str, value: float) -> Any:
    return functional.pad(data, pad, mode, value) if mode == "constant" else functional.pad(data, pad, mode)


def joined(convolution: Convolution, begin: Sequence[int], end: Sequence[int]) -> Convolution | None:
    """Return the convolution of data that computes what one does of data padded with zeros; None if there is none."""
    if convolution.by_size or convolution.is_linear or min(*begin, *end) < 0:
        return None
    scales = tuple(-s for s in convolution.strides) if convolution.transposed else (1,) * len(begin)
    begins, ends = (
        tuple(own + pad * scale for own, pad, scale in zip(pads, more, scales, strict=True))
        for pads, more in ((convolution.pads_begin, begin), (convolution.pads_end, end))
    )
    return None if min(*begins, *ends) < 0 else replace(convolution, pads_begin=begins, pads_end=ends)
