"""Layers without weights of the model: each channel is convolved by itself, with ones or with what is new in each call."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from torch import fx, nn

from .calls import Notice
from .convolution import Convolution
from .layers import FusedConvolution

_CONVOLUTIONS: dict[int, type[nn.Module]] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}


class Channelwise(Convolution):
    """What PyTorch has an operator for that is no convolution: only kernels compute it as one."""

    @property
    def is_exported(self) -> bool:
        """Whether our operator computes it in what `torch.export` and `torch.compile` see."""
        return False

    def scale(self, weight: Any) -> float | None:
        """Return what each sum of ones is multiplied by to be a mean; None: there is no such step."""
        return 1 / prod(weight.shape[2:]) if self.epilogue else None


class Unweighted(FusedConvolution):
    """A layer that has nothing to save: its filter is no parameter of the model."""

    def extra_repr(self) -> str:
        """Return what is computed: the scale is part of it."""
        return str(self.convolution.name)

    def _save_to_state_dict(self, *_: Any) -> None:
        """Save nothing."""

    def _load_from_state_dict(self, *_: Any) -> None:
        """Load nothing."""


@dataclass(frozen=True)
class Graph:
    """A graph whose nodes such layers may compute.

    Parameters
    ----------
    traced
        The graph.
    modules
        Its modules by their paths, to which the layers are added.
    shapes
        Those of its nodes, by name.
    like
        A tensor of the model's type and device.
    prefix, notice
        As for layers.
    """

    traced: fx.GraphModule
    modules: dict[str, nn.Module]
    shapes: dict[str, tuple[int, ...]]
    like: Any
    prefix: str
    notice: Notice

    def call(
        self, node: Any, path: str, kind: type[Unweighted], what: Channelwise, taps: tuple[int, ...], *arrays: Any
    ) -> None:
        """Let a node call a new layer at `path`; `arrays` are the nodes of its data, and of what stands in the residual's place."""
        channels = what.groups
        ones = _CONVOLUTIONS[len(taps)](
            channels, channels, taps, what.strides, what.pads_begin, groups=channels, bias=False
        )
        nn.init.ones_(ones.weight)
        self.modules[path] = kind(ones.to(self.like).eval(), what, self.prefix + path, self.notice)
        self.traced.add_submodule(path, self.modules[path])
        node.op, node.target, node.args = "call_module", path, arrays[:1]
        node.kwargs = dict(zip(("residual",), arrays[1:], strict=False))
