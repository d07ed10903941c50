"""Modules around one convolution whose code pads and cuts by the size of what it is given, as those of sound codecs do.

Such code branches on sizes, so its graph would hold for one size. Instead the code runs once for each new size, without the
convolution. What it does is kept, and nodes of the graph do the same in its place.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as functional
from torch import nn
from torch.overrides import TorchFunctionMode

from ..errors import InputError
from .convolution import CONVOLUTIONS
from .folding import TRANSPOSED
from .pads import Pad, by_axis, padded

# By these names a module has what a graph calls in place of its code.
PAD_BY_SIZE, CUT_BY_SIZE = "_pad_by_size", "_cut_by_size"
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, *TRANSPOSED)
_SIZES = (torch.Tensor.shape.__get__, torch.Tensor.size)
_HARMLESS = (
    *_SIZES,
    torch.Tensor.dim,
    torch.Tensor.ndim.__get__,
    torch.Tensor.dtype.__get__,
    torch.Tensor.device.__get__,
)
# Sizes that are remembered; one that is served more forgets them all and begins again.
_REMEMBERED = 1024


@dataclass(frozen=True)
class Around:
    """What code does before and after its convolution, for one size.

    Parameters
    ----------
    before
        One after the other: the pads, as `torch.nn.functional.pad` takes them, the mode and the value.
    after
        What it cuts off before and after each axis of the output.
    asked
        Whether the code asked for a size.
    """

    before: tuple[tuple[tuple[int, ...], str, float], ...]
    after: tuple[tuple[int, ...], tuple[int, ...]]
    asked: bool

    @property
    def is_zeros(self) -> bool:
        """Whether it adds zeros, and nothing else."""
        return all(mode == "constant" and value == 0 and min(pad) >= 0 for pad, mode, value in self.before)

    @property
    def cuts(self) -> bool:
        """Whether it cuts something off."""
        return any(map(any, self.after))


class Sizes:
    """What a module's code does around its convolution, by the size of what it is given.

    Parameters
    ----------
    module
        The module, of which a copy without weights is kept.
    inner
        The path of its convolution in it.
    shapes
        Of data that are tried.

    Attributes
    ----------
    asks
        Whether the code asked for sizes.
    zeros
        Whether it adds zeros before its convolution, and nothing else.
    cuts
        Whether it cuts something off after its convolution.
    pads_nothing
        Whether it pads nothing.
    """

    def __init__(self, module: nn.Module, inner: str, shapes: Sequence[Sequence[int]]) -> None:
        weights = {id(each): torch.zeros((), dtype=each.dtype).expand(each.shape) for each in module.parameters()}
        self._code = copy.deepcopy(module, {name: nn.Parameter(each, False) for name, each in weights.items()})
        self._inner = inner
        self._known: dict[tuple[int, ...], Around] = {}
        for shape in shapes:
            try:
                self._known[tuple(shape)] = self._ask(shape)
            except (RuntimeError, ValueError, AssertionError, IndexError):
                continue  # too small for the code
        tried = self._known.values()
        self.asks = any(around.asked for around in tried)
        self.zeros = all(around.is_zeros for around in tried)
        self.cuts = any(around.cuts for around in tried)
        self.pads_nothing = not any(around.before for around in tried)

    def __call__(self, shape: Sequence[int]) -> Around:
        """Return it for data of a shape; what the code raises, if it raises.

        Raises
        ------
        InputError
            If it does something else than it does with the sizes that were tried.
        """
        key = tuple(shape)
        if key not in self._known:
            around = self._ask(key)
            if (
                (self.zeros and not around.is_zeros)
                or (around.cuts and not self.cuts)
                or (around.before and self.pads_nothing)
            ):
                raise _unlike(shape)
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[key] = around
        return self._known[key]

    def _ask(self, shape: Sequence[int]) -> Around:
        weight: Any = self._code.get_submodule(self._inner).weight
        asking = _Asking(torch.zeros((), dtype=weight.dtype).expand(tuple(shape)), weight)
        with torch.no_grad(), asking:
            answer = self._code(asking.tensor)
        if answer is not asking.tensor or not asking.convolved:
            raise _unlike(shape)
        return Around(tuple(asking.before), (tuple(asking.after[0]), tuple(asking.after[1])), asking.asked)

    def pads(
        self, transposed: bool, strides: Sequence[int], shape: Sequence[int]
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return what zeros before and cuts after add to a convolution's own pads, which are cuts if it is transposed."""
        around, rank = self(shape), len(strides)
        pads = [by_axis(pad, rank) for pad, _, _ in around.before]
        totals = []
        for side in (0, 1):
            more = [sum(each[side][axis] for each in pads if each is not None) for axis in range(rank)]
            both = zip(more, around.after[side], strides, strict=True)
            totals.append(tuple(cut - pad * s if transposed else pad - cut * s for pad, cut, s in both))
        return totals[0], totals[1]


def _unlike(shape: Sequence[int]) -> InputError:
    return InputError(
        f"the code around a convolution does something else with data of shape {list(shape)} than with those that were tried;"
        " give tvmconv.torch.optimize an example of this shape"
    )


class _Asking(TorchFunctionMode):  # type: ignore[misc]
    """Follows a tensor through code that pads it, convolves it with a filter, and cuts it."""

    def __init__(self, tensor: Any, weight: Any) -> None:
        super().__init__()
        self.tensor, self._weight = tensor, weight
        self.before: list[tuple[tuple[int, ...], str, float]] = []
        self.after: list[list[int]] = []
        self.convolved = self.asked = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note what is done to the tensor."""
        kwargs = kwargs or {}
        self.asked |= func in _SIZES
        if not any(each is self.tensor for each in (*args, *kwargs.values())):
            return func(*args, **kwargs)
        if func in _HARMLESS:
            return func(*args, **kwargs)
        if func is functional.pad and not self.convolved:
            self.tensor = self._pad(*args, **kwargs)
        elif func is torch.Tensor.__getitem__:
            self.tensor = self._cut(*args)
        elif func in CONVOLUTIONS and not self.convolved and args[1:2] and args[1] is self._weight:
            self.convolved = True
            with torch._C.DisableTorchFunctionSubclass():
                like = [each.to("meta") if isinstance(each, torch.Tensor) else each for each in args]
                shape = func(*like, **kwargs).shape
            self.after = [[0] * (len(shape) - 2) for _ in "be"]
            self.tensor = torch.zeros((), dtype=self.tensor.dtype).expand(shape)
        else:
            raise _unlike(self.tensor.shape)
        return self.tensor

    def _pad(self, input: Any, pad: Any, mode: str = "constant", value: Any = None) -> Any:
        pads = by_axis(numbers := tuple(int(each) for each in pad), self.tensor.dim() - 2)
        if input is not self.tensor or pads is None:
            raise _unlike(self.tensor.shape)
        functional.pad(input.to("meta"), numbers, mode)  # whose errors are those of the code
        self._note(numbers, mode, 0.0 if value is None else float(value))
        sizes = (sum(each) for each in zip(input.shape[2:], *pads, strict=True))
        return input[:1, :1].new_zeros(()).expand(*input.shape[:2], *sizes)

    def _note(self, numbers: tuple[int, ...], mode: str, value: float) -> None:
        if any(numbers):
            self.before.append((numbers, mode, value))

    def _cut(self, tensor: Any, index: Any) -> Any:
        """Cut off what an index of slices leaves out."""
        rank = tensor.dim()
        index = index if isinstance(index, tuple) else (index,)
        if index[:1] == (Ellipsis,):
            index = (slice(None),) * (rank + 1 - len(index)) + index[1:]
        index += (slice(None),) * (rank - len(index))
        if len(index) != rank or not all(isinstance(each, slice) and each.step in (None, 1) for each in index):
            raise _unlike(self.tensor.shape)
        ends = [each.indices(size)[:2] for each, size in zip(index, tensor.shape, strict=True)]
        cuts = [(first, size - max(first, last)) for (first, last), size in zip(ends, tensor.shape, strict=True)]
        if any(cuts[0] + cuts[1]):
            raise _unlike(self.tensor.shape)
        if self.convolved:
            for axis, (first, last) in enumerate(cuts[2:]):
                self.after[0][axis] += first
                self.after[1][axis] += last
        else:
            self._note(tuple(-cut for pair in reversed(cuts[2:]) for cut in pair), "constant", 0.0)
        return tensor[index]


class PadBySize(nn.Module):  # type: ignore[misc]
    """Does to data what a module's code does before its convolution.

    Parameters
    ----------
    sizes
        What it does by the size.
    inner
        The path of the convolution in the module.
    """

    def __init__(self, sizes: Sizes, inner: str) -> None:
        super().__init__()
        self.sizes, self.inner = sizes, inner

    def forward(self, input: Any, *, out: Any = None) -> Any:
        """Pad data; nothing to pad gives them back. With `out`, pad them into that."""
        if out is not None:
            self.bind(input, out=out)()
            return out
        for pad, mode, value in self.sizes(input.shape).before:
            input = padded(input, pad, mode, value)
        return input

    def bind(self, input: Any, *, out: Any) -> Callable[[], Any]:
        """Return what pads a tensor that stays where it is into one that is given."""
        steps = self.sizes(input.shape).before
        if len(steps) != 1:
            return lambda: out.copy_(self(input))
        ((pad, mode, value),) = steps
        return Pad(mode, value).bind(input, pad, out=out)


class CutBySize(nn.Module):  # type: ignore[misc]
    """Cuts off of a convolution's output what a module's code cuts off.

    Parameters
    ----------
    sizes
        What it does by the size of the module's data.
    """

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes

    def forward(self, output: Any, input: Any) -> Any:
        """Return a view of the convolution's output; `input` are the module's data."""
        cuts = zip(output.shape[2:], *self.sizes(input.shape).after, strict=True)
        index = (..., *(slice(first, size - last) for size, first, last in cuts))
        return output[index]


def with_sizes(model: nn.Module) -> nn.Module:
    """Return a copy of a model in which each module that pads and cuts by size has what a graph calls in place of its code.

    The model itself, if it has none.
    """
    found = {path: by_size for path, module in model.named_modules() if (by_size := _recognised(module)) is not None}
    if not found:
        return model
    known = copy.deepcopy(model)
    for path, (sizes, inner) in found.items():
        known.get_submodule(path).add_module(PAD_BY_SIZE, PadBySize(sizes, inner).eval())
        known.get_submodule(path).add_module(CUT_BY_SIZE, CutBySize(sizes).eval())
    return known


def _recognised(module: nn.Module) -> tuple[Sizes, str] | None:
    """Return what a module does by size, and where its convolution is; None if it is no such module."""
    if type(module).__module__.startswith("torch.") or module.training:
        return None
    inner = [(name, each) for name, each in module.named_modules() if type(each) in _CONVOLUTIONS]
    if len(inner) != 1 or any(each._forward_hooks or each._forward_pre_hooks for each in module.modules()):
        return None
    name, convolution = inner[0]
    if not name or convolution.padding_mode != "zeros" or isinstance(convolution.padding, str):
        return None
    try:
        sizes = Sizes(module, name, _shapes(convolution))
    except Exception:  # noqa: BLE001 - a module's own code may raise anything to stand-ins
        return None
    if not sizes.asks or (type(convolution) in TRANSPOSED and not sizes.pads_nothing):
        return None
    return sizes, name


def _shapes(convolution: Any) -> list[tuple[int, ...]]:
    """Return shapes of data: of one element, from less than the taps span to more, with each remainder by the stride."""
    spans = [(k - 1) * d + 1 for k, d in zip(convolution.kernel_size, convolution.dilation, strict=True)]
    most = max(*convolution.stride, 1)
    more = [-1, *range(most + 1), 8 * max(spans)]
    sizes = [(1,) * len(spans), *(tuple(max(1, span + each) for span in spans) for each in more)]
    return [(2, convolution.in_channels, *each) for each in sizes]
