"""`Convolution`: what a layer computes, without its weights; and the same computed by PyTorch.

A Linear is one without spatial axes: each row of numbers along the last axis is a pixel of a pointwise convolution.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any, Protocol

import torch
import torch.nn.functional as functional

from .. import ops
from ..epilogue import Step, format_epilogue, parse_epilogue
from ..problem import Problem
from .layout import CHANNELS_LAST, CHANNELS_SECOND, Layout
from .same import same_pads

DTYPES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
_CONVOLUTIONS = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
_TRANSPOSED = {1: functional.conv_transpose1d, 2: functional.conv_transpose2d, 3: functional.conv_transpose3d}
CONVOLUTIONS = (*_CONVOLUTIONS.values(), *_TRANSPOSED.values())  # the functions that one is called by
_STEPS: dict[str, Callable[..., Any]] = {
    "relu": torch.relu,
    "clip": torch.clamp,
    "leaky": functional.leaky_relu,
    "elu": functional.elu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "hardsigmoid": lambda x, a, b: (x * a + b).clamp(0, 1),
    "silu": functional.silu,
    "hardswish": functional.hardswish,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
}


class Sized(Protocol):
    """What code does around a convolution by the size of its data."""

    cuts: bool

    def pads(
        self, transposed: bool, strides: Sequence[int], shape: Sequence[int]
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return what it adds to the pads for data of a shape."""
        ...


@dataclass(frozen=True)
class Convolution:
    """A convolution or a Linear as PyTorch describes it, and its epilogue. Pads may differ, as "same" gives them.

    Parameters
    ----------
    transposed
        Whether it is a ConvTranspose.
    strides, pads_begin, pads_end, dilations, output_padding
        A number for each spatial axis; none for a Linear.
    groups
        As in PyTorch.
    epilogue
        The steps after it (:mod:`tvmconv.epilogue`), empty for none.
    same
        Whether the pads follow from the data's size (:func:`tvmconv.torch.same.same_pads`), whatever they are here.
    sized
        What pads by the data's size, and cuts the output, beside the pads that are known; None: nothing does.
    adds_in_place
        Whether the step ``add`` leaves the type as it is, whatever the type of what is added: autocast gives several.
    """

    transposed: bool
    strides: tuple[int, ...]
    pads_begin: tuple[int, ...]
    pads_end: tuple[int, ...]
    dilations: tuple[int, ...]
    output_padding: tuple[int, ...]
    groups: int
    epilogue: str = ""
    same: bool = False
    adds_in_place: bool = False
    sized: Sized | None = None

    def at(self, data: Sequence[int], weight: Sequence[int]) -> Convolution:
        """Return the convolution with the pads that it has for data of this shape."""
        if self.sized is not None:
            more = self.sized.pads(self.transposed, self.strides, data)
            begin, end = (
                tuple(map(sum, zip(own, other, strict=True)))
                for own, other in zip((self.pads_begin, self.pads_end), more, strict=True)
            )
            return replace(self, pads_begin=begin, pads_end=end, sized=None)
        if not self.same:
            return self
        begin, end = same_pads(data[-len(self.strides) :], weight[2:], self.strides, self.dilations)
        return replace(self, pads_begin=begin, pads_end=end, same=False)

    @property
    def by_size(self) -> bool:
        """Whether the pads follow from the data's size."""
        return self.same or self.sized is not None

    @property
    def name(self) -> str:
        """Name of PyTorch's function."""
        if self.is_linear:
            return "linear"
        return f"{'conv_transpose' if self.transposed else 'conv'}{len(self.strides)}d"

    @property
    def is_linear(self) -> bool:
        """Whether it is a Linear."""
        return not self.strides

    @property
    def layout(self) -> Layout:
        """Where its tensors have their channels."""
        return CHANNELS_LAST if self.is_linear else CHANNELS_SECOND

    def takes(self, rank: int) -> bool:
        """Whether data may have so many axes."""
        return rank > 0 if self.is_linear else rank == len(self.strides) + 2

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The steps of the epilogue."""
        return parse_epilogue(self.epilogue or None)

    @property
    def arguments(self) -> tuple[Any, ...]:
        """All fields as the operator takes them, which knows the pads and is given one type."""
        axes = (self.strides, self.pads_begin, self.pads_end, self.dilations, self.output_padding)
        return (self.transposed, *map(list, axes), self.groups, self.epilogue)

    def output_shape(self, data: Sequence[int], weight: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of the output, whose numbers may be symbols."""
        if self.is_linear:
            return (*data[:-1], weight[0])
        if self.by_size:
            return self.at(data, weight).output_shape(data, weight)
        spatial = []
        for axis, s in enumerate(self.strides):
            pads, d = self.pads_begin[axis] + self.pads_end[axis], self.dilations[axis]
            x, span = data[axis + 2], d * (weight[axis + 2] - 1) + 1
            if self.transposed:
                spatial.append((x - 1) * s - pads + span + self.output_padding[axis])
            else:
                spatial.append((x + pads - span) // s + 1)
        return (data[0], weight[1] * self.groups if self.transposed else weight[0], *spatial)

    def problem(self, data: Sequence[int], weight: Sequence[int], bias: bool, dtype: str) -> Problem:
        """Return the Problem for arrays of these shapes, channels last.

        Raises
        ------
        InvalidProblemError
            If there is none.
        """
        if self.is_linear:
            # A pointwise convolution: of images where data look so, else of one row of all pixels.
            batch, *spatial, channels = data if 3 <= len(data) <= 5 else (1, prod(data[:-1]), data[-1])
            ones, none = (1,) * len(spatial), (0,) * len(spatial)
            pointwise = Convolution(False, ones, none, none, ones, none, 1, self.epilogue)
            return pointwise.problem((batch, channels, *spatial), (*weight, *ones), bias, dtype)
        if self.by_size:
            return self.at(data, weight).problem(data, weight, bias, dtype)
        resolve = ops.convolution_backprop_data if self.transposed else ops.convolution
        more: dict[str, Any] = {"output_padding": self.output_padding} if self.transposed else {}
        made = resolve(
            (data[0], *data[2:], data[1]),
            (*weight[2:], weight[1], weight[0]),
            strides=self.strides,
            dilations=self.dilations,
            pads_begin=self.pads_begin,
            pads_end=self.pads_end,
            groups=self.groups,
            dtype=dtype,
            epilogue=format_epilogue(self.steps) or None,
            **more,
        )
        return made.with_(bias=bias)

    @property
    def is_exported(self) -> bool:
        """Whether our operator computes it in what `torch.export` and `torch.compile` see."""
        return True

    @property
    def filter_is_residual(self) -> bool:
        """Whether the filter is what stands in the residual's place, new in each call, and the weight but its type."""
        return False

    def filter(self, weight: Any, data: Any) -> Any:
        """Return the filter that data are convolved with."""
        return weight

    def scale(self, weight: Any) -> float | None:
        """Return what each sum of a filter is multiplied by, by the step ``scale``; None: there is no such step."""
        return None

    def refuses(self, residual: Any, shape: Sequence[int]) -> str | None:
        """Return why a kernel cannot add this to an output of a shape, None if it can."""
        if tuple(residual.shape) in (tuple(shape), (1, *shape[1:])):  # the same for all images
            return None
        return f"what is added has another shape, {'x'.join(map(str, residual.shape))}"

    def by_torch(
        self,
        data: Any,
        weight: Any,
        bias: Any,
        residual: Any,
        slope: Any = None,
        output_padding: tuple[int, ...] | None = None,
    ) -> Any:
        """Return what PyTorch computes; `output_padding`: in place of its own."""
        if self.by_size:
            return self.at(data.shape, weight.shape).by_torch(data, weight, bias, residual, slope)
        rank = len(self.strides)
        # What both ends have is PyTorch's own padding.
        both = tuple(map(min, self.pads_begin, self.pads_end))
        begin, end = (
            tuple(pad - common for pad, common in zip(pads, both, strict=True))
            for pads in (self.pads_begin, self.pads_end)
        )
        uneven = any(begin + end) or min(both, default=0) < 0
        if uneven and not self.transposed:
            ends = zip(reversed(self.pads_begin), reversed(self.pads_end), strict=True)
            data, both = functional.pad(data, [pad for pads in ends for pad in pads]), (0,) * rank
        arrays = (data, weight, bias, self.strides, both)
        if self.is_linear:
            output = functional.linear(data, weight, bias)
        elif self.transposed:
            extra = self.output_padding if output_padding is None else output_padding
            output = _TRANSPOSED[rank](*arrays, extra, self.groups, self.dilations)
            if uneven:
                sizes = zip(output.shape[-rank:], begin, end, strict=True)
                index = (..., *(slice(first, max(size - last, 0)) for size, first, last in sizes))
                output = output[index]
        else:
            output = _CONVOLUTIONS[rank](*arrays, self.dilations, self.groups)
        for step in self.steps:
            if step.name == "add":
                total = output + residual
                output = total.to(output.dtype) if self.adds_in_place else total
            elif step.name == "prelu":
                output = functional.prelu(output, slope)
            else:
                output = _STEPS[step.name](output, *step.numbers)
        return output
