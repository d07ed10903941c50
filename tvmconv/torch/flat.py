"""`Flat`: a model for one structure of arguments, which takes and gives tensors alone, and leaves them lie as they do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn
from torch._prims_common import is_contiguous_or_false
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from ..errors import SourceError, last_line
from .objects import KINDS, put_together, take_apart


class Flat(nn.Module):  # type: ignore[misc]
    """A model for one structure of arguments: it takes and gives tensors alone, one after the other.

    Each tensor is taken and given with its axes in the order in which they lie in memory.

    Parameters
    ----------
    model
        The model.
    args, kwargs
        An example of its arguments.

    Attributes
    ----------
    tensors
        The example's.
    around
        What the model's code is called in.

    Raises
    ------
    SourceError
        If an argument is no tensor, number, text or None.
    """

    def __init__(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        super().__init__()
        self.model = model
        leaves, self._in_spec = flatten_arguments(args, kwargs)
        self._given = [_constant(each) for each in leaves]
        found = [each for each in leaves if isinstance(each, torch.Tensor)]
        self._orders = [order_of(each) for each in found]
        self.tensors = tuple(
            permute(each.detach(), order).contiguous() for each, order in zip(found, self._orders, strict=True)
        )
        self._answers = _Answers()
        self.around: Callable[[], AbstractContextManager[Any]] = nullcontext
        # In a list, where torch.export does not take them for constants of the program.
        self._numbers = [{name: each.clone() for name, each in model.named_buffers() if _is_number(each)}]

    def forward(self, *tensors: Any) -> tuple[Any, ...]:
        """Return the tensors of the model's answer."""
        self._tell_numbers()
        given = [permute(each, inverse(order)) for each, order in zip(tensors, self._orders, strict=True)]
        found = iter(given)
        leaves = [next(found) if constant is None else constant[0] for constant in self._given]
        args, kwargs = pytree.tree_unflatten(leaves, self._in_spec)
        answers = self._answers
        with self.around():
            answer = self.model(*args, **kwargs)
        returned, answers.spec = pytree.tree_flatten(take_apart(answer))
        known, whats = list(given), []
        for each in returned:
            whats.append(what := _answer(each, known))
            known += [each] if what is None else []
        answers.returned, made = whats, known[len(given) :]
        answers.orders = [order_of(each) for each in made]
        return tuple(permute(each, order) for each, order in zip(made, answers.orders, strict=True))

    def _tell_numbers(self) -> None:
        """Tell tensors that stand for buffers in an export what the numbers are by which code decides: strides, of some models."""
        for name, buffer in self.model.named_buffers():
            if isinstance(buffer, FakeTensor) and name in self._numbers[0]:
                buffer.constant = self._numbers[0][name]

    def structure(self) -> Structure:
        """Return what arguments and answers are like, after a call."""
        answers = self._answers
        return Structure(self._in_spec, self._given, self._orders, answers.spec, answers.returned, answers.orders)


class _Answers:
    """Structure of a model's answers; an object, for torch.export sets attributes of modules back."""

    spec: Any = None
    returned: Sequence[Any] = ()
    orders: Sequence[list[int]] = ()


class Structure:
    """Structure of a model's arguments and answers.

    Attributes
    ----------
    in_spec, out_spec
        What holds the leaves of arguments and answers.
    given, returned
        Of each leaf: None if it is a tensor, else its value in a list; of an answer that is an argument, or one before it,
        the number of its tensor among those of arguments and answers.
    in_orders, out_orders
        Of each tensor, in which order its axes lie in memory.
    """

    def __init__(
        self,
        in_spec: Any,
        given: Sequence[Any],
        in_orders: Any,
        out_spec: Any,
        returned: Sequence[Any],
        out_orders: Any,
    ) -> None:
        self.in_spec, self.given, self.in_orders = in_spec, list(given), [list(each) for each in in_orders]
        self.out_spec, self.returned, self.out_orders = out_spec, list(returned), [list(each) for each in out_orders]

    @property
    def is_tensor(self) -> bool:
        """Return whether the answer is a tensor, and no argument."""
        return self.returned == [None] and pytree.tree_unflatten(self.returned, self.out_spec) is None

    def facts(self) -> dict[str, Any]:
        """Return it as it is written in a library.

        Raises
        ------
        SourceError
            If a class of arguments or answers cannot be written.
        """
        try:
            specs = [pytree.treespec_dumps(each) for each in (self.in_spec, self.out_spec)]
        except NotImplementedError as error:  # of a class that PyTorch's trees cannot name
            raise SourceError(
                f"the model's arguments or answers have a class that cannot be written: {last_line(error)}; let it take and give"
                " tensors, tuples, lists and dicts (return_dict=False)"
            ) from error
        return {
            **{"in_spec": specs[0], "given": self.given, "in_orders": self.in_orders},
            **{"out_spec": specs[1], "returned": self.returned, "out_orders": self.out_orders},
        }

    @classmethod
    def read(cls, facts: dict[str, Any]) -> Structure:
        """Return what :meth:`facts` wrote."""
        specs = [pytree.treespec_loads(facts[name]) for name in ("in_spec", "out_spec")]
        return cls(specs[0], facts["given"], facts["in_orders"], specs[1], facts["returned"], facts["out_orders"])

    def __getstate__(self) -> dict[str, Any]:
        return self.facts()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(vars(self.read(state)))

    def answer(self, tensors: Sequence[Any], given: Sequence[Any]) -> Any:
        """Return a model's answer of its tensors, and those that it was given."""
        found, known = iter(tensors), [*given, *tensors]
        leaves = [
            next(found) if each is None else known[each] if isinstance(each, int) else each[0] for each in self.returned
        ]
        return put_together(pytree.tree_unflatten(leaves, self.out_spec))


def flatten_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], Any]:
    """Return the leaves of arguments, and what holds them; named ones in the order of their names."""
    return pytree.tree_flatten((args, dict(sorted(kwargs.items()))))


def is_same(leaf: Any, constant: Any) -> bool:
    """Return whether an argument is what a model was compiled for: 1 is not True, nor 1.0, and NaN is NaN."""
    if not isinstance(leaf, type(constant)) or isinstance(leaf, bool) != isinstance(constant, bool):
        return False
    return bool(leaf == constant) or (leaf != leaf and constant != constant)


def order_of(tensor: Any) -> list[int]:
    """Return the axes of a tensor in the order in which they lie in memory; as they are, where memory has gaps."""
    axes = list(range(tensor.dim()))
    if tensor.layout != torch.strided or _is_contiguous(tensor):
        return axes
    order = sorted(axes, key=lambda axis: -extent_of(tensor.stride(axis)))
    return order if _is_contiguous(tensor.permute(order)) else axes


def _is_contiguous(tensor: Any) -> bool:
    """Return whether a tensor has no gaps; of extents that are free, as it surely has none."""
    if all(isinstance(each, int) for each in (*tensor.shape, *tensor.stride())):
        return bool(tensor.is_contiguous())
    return bool(is_contiguous_or_false(tensor))


def extent_of(size: Any) -> int:
    """Return an extent or a stride; one that is free as it is for the example, without deciding that it is; 1 of one that only a call tells."""
    return size if isinstance(size, int) else int(size.node.hint or 1)


def permute(tensor: Any, order: Sequence[int]) -> Any:
    """Return a tensor whose axes are in an order; itself if they are."""
    return tensor if list(order) == sorted(order) else tensor.permute(order)


def inverse(order: Sequence[int]) -> list[int]:
    """Return the order that brings axes back."""
    return sorted(range(len(order)), key=order.__getitem__)


def _is_number(buffer: Any) -> bool:
    return buffer.numel() == 1 and not (buffer.is_floating_point() or buffer.is_complex() or buffer.is_meta)


def _constant(leaf: Any) -> list[Any] | None:
    """Return in a list what a leaf always is; None: it is a tensor."""
    if isinstance(leaf, torch.Tensor):
        return None
    if not isinstance(leaf, KINDS):
        raise SourceError(f"the model takes or gives a {type(leaf).__name__}; allowed: tensors, numbers, text and None")
    return [leaf]


def _answer(leaf: Any, given: Sequence[Any]) -> list[Any] | int | None:
    """Return the same of an answer, or the number of the tensor that it is."""
    return next((number for number, each in enumerate(given) if leaf is each), None) if isinstance(leaf, torch.Tensor) else _constant(leaf)  # fmt: skip
