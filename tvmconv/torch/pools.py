"""`MaxPool`: a max pooling of a plan, one axis after the other, without the indices that PyTorch finds beside the maxima."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as functional
from torch import nn

from .layout import CHANNELS_SECOND
from .native import max_pool

_POOLS = {
    **dict.fromkeys((nn.MaxPool1d, functional.max_pool1d), 1),
    **dict.fromkeys((nn.MaxPool2d, functional.max_pool2d), 2),
    **dict.fromkeys((nn.MaxPool3d, functional.max_pool3d), 3),
}
_NAMES = ("kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices")


@dataclass(frozen=True)
class _Axis:
    """One axis: output `i` is the greatest of the inputs ``i * stride - pad + k * dilation`` that there are, for `taps` k."""

    inputs: int
    outputs: int
    taps: int
    stride: int
    pad: int
    dilation: int

    def meets(self, tap: int) -> range:
        """Return the outputs for which a tap reads an input."""
        start = tap * self.dilation - self.pad  # what it reads for output 0
        return range(max(0, -(start // self.stride)), min(self.outputs, -((start - self.inputs) // self.stride)))

    def read(self, tap: int) -> slice:
        """Return which inputs a tap reads."""
        met = self.meets(tap)
        start = met.start * self.stride + tap * self.dilation - self.pad
        return slice(start, start + (len(met) - 1) * self.stride + 1, self.stride)

    @property
    def order(self) -> list[int]:
        """The taps that read an input, those first that do for the most outputs."""
        return sorted(filter(self.meets, range(self.taps)), key=lambda tap: -len(self.meets(tap)))


@dataclass(frozen=True)
class MaxPool:
    """A max pooling of data with channels last.

    Two threads of a Zen 4, in microseconds, and PyTorch: 192 channels at 71x71, 3x3 taps with stride 2, in f32 109 and 165, in
    bf16 166 and 301; 32 at 256x256, 2x2 taps, 116 and 366, 172 and 371.

    Attributes
    ----------
    data
        The node of what is pooled.
    shape
        The data's.
    axes
        The spatial axes.
    """

    data: Any
    shape: tuple[int, ...]
    axes: tuple[_Axis, ...]

    @property
    def scratch(self) -> list[tuple[int, ...]]:
        """Shapes of the maxima along the first axis, along the first two, and so on, but along all."""
        outputs = [axis.outputs for axis in self.axes]
        return [(*self.shape[:2], *outputs[:n], *self.shape[2 + n :]) for n in range(1, len(outputs))]

    def bind(self, data: Any, scratch: Sequence[Any], out: Any) -> Callable[[], None]:
        """Return what pools `data` to `out`, by way of tensors of the shapes `scratch`, whatever `data` holds by then.

        Numbers without a sign, as after a ReLU, are in the order of their bits, and so is what is not a number: maxima of whole
        numbers of 16 bits take PyTorch 23 us where those of bf16 take 56, and 16 to find a sign (64 channels of 147x147, a
        Zen 5). Once there is one, nobody looks again.
        """
        axes = [(each.inputs, each.outputs, each.taps, each.stride, each.pad, each.dilation) for each in self.axes]
        if (compiled := max_pool(data, axes, out)) is not None:
            return compiled
        compute = self._steps(data, scratch, out)
        if data.dtype != torch.bfloat16:
            return compute
        bits, *others = (each.view(torch.int16) for each in (data, *scratch, out))
        of_bits, signed = self._steps(bits, others[:-1], others[-1]), False

        def compute_either() -> None:
            nonlocal signed
            signed = signed or bool(bits.amin() < 0)
            (compute if signed else of_bits)()

        return compute_either

    def _steps(self, data: Any, scratch: Sequence[Any], out: Any) -> Callable[[], None]:
        steps: list[Callable[[], Any]] = []
        for place, (axis, target) in enumerate(zip(self.axes, (*scratch, out), strict=True), start=2):
            steps += _maxima(axis, place, data, target)
            data = target

        def compute() -> None:
            for step in steps:
                step()

        return compute


def _maxima(axis: _Axis, place: int, data: Any, out: Any) -> Iterator[Callable[[], Any]]:
    """Yield the steps that write the maxima of `data` along its axis `place` to `out`."""

    def along(tensor: Any, part: slice) -> Any:
        return tensor[(slice(None),) * place + (part,)]

    first, *others = axis.order
    begun = along(data, axis.read(first))
    if not others:
        yield functools.partial(out.copy_, begun)
    for number, tap in enumerate(others):
        met = axis.meets(tap)
        part = slice(met.start, met.stop)
        before = along(out if number else begun, part)
        yield functools.partial(torch.maximum, before, along(data, axis.read(tap)), out=along(out, part))
        for rest in (slice(0, met.start), slice(met.stop, axis.outputs)):
            if not number and rest.start < rest.stop:
                yield functools.partial(along(out, rest).copy_, along(begun, rest))


def max_pool_of(root: Any, node: Any, met: Mapping[Any, Any]) -> MaxPool | None:
    """Return the max pooling that a node of a graph is; None if it is something else, or its tensors lie otherwise.

    `met` tells of the nodes of a plan what was seen of their values.
    """
    module = root.get_submodule(node.target) if node.op == "call_module" else None
    rank = _POOLS.get(node.target if module is None else type(module))
    options = None if rank is None else options_of(node, module, _NAMES)
    if rank is None or options is None:
        return None
    data, out = met.get(node.args[0]), met[node]
    if data is None or data.dtype not in (torch.float32, torch.bfloat16) or len(data.shape) != rank + 2:
        return None
    if 0 in out.shape or any(each.strides != CHANNELS_SECOND.strides(each.shape) for each in (data, out)):
        return None
    taps = for_each(options["kernel_size"], rank)
    strides, pads = for_each(options["stride"] or taps, rank), for_each(options["padding"] or 0, rank)
    dilations = for_each(options["dilation"] or 1, rank)
    each_axis = zip(data.shape[2:], out.shape[2:], taps, strides, pads, dilations, strict=True)
    axes = tuple(_Axis(*axis) for axis in each_axis)
    if any(len(axis.meets(axis.order[0])) < axis.outputs for axis in axes):
        return None  # no tap reads an input for all outputs
    return MaxPool(node.args[0], data.shape, axes)


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
