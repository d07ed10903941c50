"""`Flat`: a model for one structure of arguments, as a function of tensors that keeps their memory order."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from operator import is_not
from typing import Any

import torch
from torch import nn
from torch._prims_common import is_contiguous_or_false
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from ..errors import SourceError, last_line
from .objects import KINDS, put_together, take_apart


class Flat(nn.Module):  # type: ignore[misc]
    """A model for one structure of arguments: it takes and returns a flat sequence of tensors.

    Each tensor has its axes in memory order.

    Parameters
    ----------
    args, kwargs
        An example of its arguments.
    gives_views
        Whether answers within the memory of other answers are omitted, to be created as views of these.

    Attributes
    ----------
    tensors
        The example's tensors.
    around
        Returns the context in which the model's code is called.

    Raises
    ------
    SourceError
        If an argument is no tensor, number, text or None, or a call changes a list or dict among its arguments.
    """

    def __init__(
        self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], gives_views: bool = False
    ) -> None:
        super().__init__()
        self.model, self._gives_views = model, gives_views
        leaves, self._in_spec = flatten_arguments(args, kwargs)
        self._given = [_constant(each) for each in leaves]
        found = [each for each in leaves if isinstance(each, torch.Tensor)]
        self._orders = [order_of(each) for each in found]
        self.tensors = tuple(
            permute(each.detach(), order).contiguous() for each, order in zip(found, self._orders, strict=True)
        )
        self._answers = _Answers()
        self.around: Callable[[], AbstractContextManager[Any]] = nullcontext
        # In a list, so that torch.export does not make them constants of the program.
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
        left, spec = flatten_arguments(args, kwargs)
        if spec != self._in_spec or any(map(is_not, left, leaves)):
            raise SourceError("the model changes a list or dict that it is given, and a network gives answers alone")
        returned, answers.spec = pytree.tree_flatten(take_apart(answer))
        answered = distinct(returned, given)
        views = find_views(answered) if self._gives_views else [None] * len(answered)
        made = [each for each, view in zip(answered, views, strict=True) if view is None]
        parts = [each for each, view in zip(answered, views, strict=True) if view is not None]
        numbers = {id(each): number for number, each in enumerate([*given, *made, *parts])}
        answers.views = [[numbers[id(answered[view[0]])], *view[1:]] for view in views if view is not None]
        answers.returned = _describe(returned, numbers, made)
        answers.orders = [order_of(each) for each in made]
        return tuple(permute(each, order) for each, order in zip(made, answers.orders, strict=True))

    def _tell_numbers(self) -> None:
        """Give fake tensors of buffers the numbers by which code decides during an export, such as strides."""
        for name, buffer in self.model.named_buffers():
            if isinstance(buffer, FakeTensor) and name in self._numbers[0]:
                buffer.constant = self._numbers[0][name]

    def structure(self) -> Structure:
        """Return the structure of arguments and answers, after a call."""
        answers = self._answers
        return Structure(
            self._in_spec, self._given, self._orders, answers.spec, answers.returned, answers.orders, answers.views
        )


class _Answers:
    """Structure of a model's answers; an object, because torch.export restores attributes of modules."""

    spec: Any = None
    returned: Sequence[Any] = ()
    orders: Sequence[list[int]] = ()
    views: Sequence[Any] = ()


class Structure:
    """Structure of a model's arguments and answers.

    Attributes
    ----------
    in_spec, out_spec
        PyTorch's trees of arguments and answers.
    given, returned
        For each leaf: None for a tensor, else its value in a list; for an answer that is an argument or repeats an earlier
        answer, the number of its tensor among those of arguments, answers and views.
    in_orders, out_orders
        For each tensor, its axes in memory order.
    views
        For each answer within the memory of another one: the other's number, and its extents, strides and offset there.
    """

    def __init__(
        self,
        in_spec: Any,
        given: Sequence[Any],
        in_orders: Any,
        out_spec: Any,
        returned: Sequence[Any],
        out_orders: Any,
        views: Sequence[Any] = (),
    ) -> None:
        self.in_spec, self.given, self.in_orders = in_spec, list(given), [list(each) for each in in_orders]
        self.out_spec, self.returned, self.out_orders = out_spec, list(returned), [list(each) for each in out_orders]
        self.views = list(views)

    @property
    def is_tensor(self) -> bool:
        """Return whether the answer is a tensor, and no argument."""
        return self.returned == [None] and pytree.tree_unflatten(self.returned, self.out_spec) is None

    @property
    def answers(self) -> dict[str, Any]:
        """Return the facts of the answers' tensors."""
        return {"returned": self.returned, "out_orders": self.out_orders, "views": self.views}

    def facts(self) -> dict[str, Any]:
        """Return the structure in the form that is stored in a library.

        Raises
        ------
        SourceError
            If a class of arguments or answers cannot be written.
        """
        try:
            specs = [pytree.treespec_dumps(each) for each in (self.in_spec, self.out_spec)]
        except NotImplementedError as error:  # a class without a name in PyTorch's trees
            raise SourceError(
                f"an argument or result of the model has a class that cannot be saved: {last_line(error)}; use tensors, tuples, lists"
                " and dicts (return_dict=False)"
            ) from error
        return {
            **{"in_spec": specs[0], "given": self.given, "in_orders": self.in_orders},
            **{"out_spec": specs[1], **self.answers},
        }

    @classmethod
    def read(cls, facts: dict[str, Any]) -> Structure:
        """Return the object that :meth:`facts` described."""
        specs = [pytree.treespec_loads(facts[name]) for name in ("in_spec", "out_spec")]
        # Older libraries have no views.
        answers = facts["returned"], facts["out_orders"], facts.get("views", [])
        return cls(specs[0], facts["given"], facts["in_orders"], specs[1], *answers)

    def __getstate__(self) -> dict[str, Any]:
        return self.facts()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(vars(self.read(state)))

    def answer(self, tensors: Sequence[Any], given: Sequence[Any]) -> Any:
        """Return a model's answer, built of its tensors and those of the arguments."""
        if self.views:
            tensors = self._lay_out(tensors, len(given))
        found, known = iter(tensors), [*given, *tensors]
        known += [view_of(known[number], *lies) for number, *lies in self.views]
        leaves = [
            next(found) if each is None else known[each] if isinstance(each, int) else each[0] for each in self.returned
        ]
        return put_together(pytree.tree_unflatten(leaves, self.out_spec))

    def _lay_out(self, tensors: Sequence[Any], given: int) -> list[Any]:
        """Return answers that have views in the example's memory order: PyTorch's operators may use another one."""
        tensors = list(tensors)
        for number in {number - given for number, *_ in self.views}:
            order = self.out_orders[number]
            tensors[number] = permute(permute(tensors[number], order).contiguous(), inverse(order))
        return tensors


def flatten_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], Any]:
    """Return the leaves of arguments, and their structure; named arguments are sorted by name."""
    return pytree.tree_flatten((args, dict(sorted(kwargs.items()))))


def bind_as(
    signature: inspect.Signature, specs: Iterable[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return arguments of a function in the form of one of `specs`: by position or by name, with or without defaults.

    If none has the same arguments, or the function does not take them, they are returned as they are.
    """
    forms = {(spec.child(0).num_children, tuple(spec.child(1).context)) for spec in specs}
    if (len(args), tuple(sorted(kwargs))) in forms:
        return args, kwargs
    try:
        given = signature.bind(*args, **kwargs).arguments
    except TypeError:
        return args, kwargs
    parameters = signature.parameters.values()
    for each in parameters:
        if each.kind is each.VAR_KEYWORD:
            given |= given.pop(each.name, {})
    places = [each.name for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    defaults = {each.name: each.default for each in parameters if each.default is not each.empty}
    for count, named in forms:
        by_place = places[:count]
        wanted = [*by_place, *named]
        others = given.keys() ^ wanted
        found = defaults | given
        if len(by_place) == count and all(name in defaults and found[name] is defaults[name] for name in others):
            return tuple(found[name] for name in by_place), {name: found[name] for name in named}
    return args, kwargs


def describe_form(spec: Any) -> str:
    """Return a readable description of the arguments' structure."""
    by_place, by_name = spec.children()
    shown = [*map(_show, by_place.children())]
    shown += [f"{name}={_show(each)}" for name, each in zip(by_name.context, by_name.children(), strict=True)]
    return f"({', '.join(shown)})"


def _show(spec: Any) -> str:
    if spec.is_leaf():
        return "..."
    if spec.type is dict:
        return f"{{{', '.join(f'{name!r}: {_show(each)}' for name, each in zip(spec.context, spec.children(), strict=True))}}}"
    return f"{spec.type.__name__}({', '.join(map(_show, spec.children()))})"


def is_same(leaf: Any, constant: Any) -> bool:
    """Return whether an argument equals a model's constant: 1 equals neither True nor 1.0, and NaN equals NaN."""
    if not isinstance(leaf, type(constant)) or isinstance(leaf, bool) != isinstance(constant, bool):
        return False
    return bool(leaf == constant) or (leaf != leaf and constant != constant)


def order_of(tensor: Any) -> list[int]:
    """Return a tensor's axes in their memory order; in the given order, if memory has gaps."""
    axes = list(range(tensor.dim()))
    if tensor.layout != torch.strided or _is_contiguous(tensor):
        return axes
    order = sorted(axes, key=lambda axis: -extent_of(tensor.stride(axis)))
    return order if _is_contiguous(tensor.permute(order)) else axes


def _is_contiguous(tensor: Any) -> bool:
    """Return whether a tensor is contiguous; with free extents, whether it is for all of them."""
    if all(isinstance(each, int) for each in (*tensor.shape, *tensor.stride())):
        return bool(tensor.is_contiguous())
    return bool(is_contiguous_or_false(tensor))


def extent_of(size: Any) -> int:
    """Return an extent or a stride; for a free one the example's value, without fixing it; 1 if it is known only in a call."""
    return size if isinstance(size, int) else int(size.node.hint or 1)


def permute(tensor: Any, order: Sequence[int]) -> Any:
    """Return a tensor with permuted axes; the tensor itself for the identity."""
    return tensor if list(order) == sorted(order) else tensor.permute(order)


def inverse(order: Sequence[int]) -> list[int]:
    """Return the inverse of a permutation of axes."""
    return sorted(range(len(order)), key=order.__getitem__)


def _is_number(buffer: Any) -> bool:
    return buffer.numel() == 1 and not (buffer.is_floating_point() or buffer.is_complex() or buffer.is_meta)


def _constant(leaf: Any) -> list[Any] | None:
    """Return a leaf's constant in a list; None if it is a tensor."""
    if isinstance(leaf, torch.Tensor):
        return None
    if not isinstance(leaf, KINDS):
        raise SourceError(
            f"the model takes or returns a {type(leaf).__name__}; allowed: tensors, numbers, text and None"
        )
    return [leaf]


def distinct(leaves: Sequence[Any], others: Sequence[Any] = ()) -> list[Any]:
    """Return the distinct tensors among leaves, without those of `others`."""
    seen, found = {*map(id, others)}, []
    for each in leaves:
        if isinstance(each, torch.Tensor) and id(each) not in seen:
            seen.add(id(each))
            found.append(each)
    return found


def find_views(tensors: Sequence[Any]) -> list[tuple[int, list[int], list[int], int] | None]:
    """Return, for each tensor, the largest other one that contains it, and its extents, strides and offset there; None if there is none.

    Containing tensors have no gaps, so that their memory can be allocated anew.
    """
    with torch._C.DisableTorchFunction():  # so that modes do not see questions about storages
        spans = [_span(each) for each in tensors]
    found: list[tuple[int, list[int], list[int], int] | None] = []
    for number, (each, span) in enumerate(zip(tensors, spans, strict=True)):
        others = [at for at, other in enumerate(spans) if at != number and _lies_within(span, other)]
        whole = min(others, key=lambda at: (-tensors[at].numel(), at), default=None)
        if whole is None or (tensors[whole].numel() == each.numel() and number < whole):
            found.append(None)
            continue
        # The stride of an extent of 1 is arbitrary, and differs between calls and torch.export.
        strides = [step if size > 1 else 1 for size, step in zip(each.shape, each.stride(), strict=True)]
        found.append((whole, list(each.shape), strides, each.storage_offset() - tensors[whole].storage_offset()))
    return found


def _span(tensor: Any) -> Any:
    """Return a tensor's begin and end in memory, and whether it has no gaps; None if they are unknown."""
    if tensor.layout != torch.strided or not all(isinstance(each, int) for each in (*tensor.shape, *tensor.stride())):
        return None
    if not tensor.numel():
        return None
    begin = tensor.storage_offset()
    end = begin + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True)) + 1
    kind = (tensor.untyped_storage()._cdata, tensor.dtype, tensor.is_conj(), tensor.is_neg())
    return kind, begin, end, permute(tensor, order_of(tensor)).is_contiguous()


def _lies_within(one: Any, other: Any) -> bool:
    """Return whether the span of a tensor is within that of another, which has no gaps."""
    if one is None or other is None or one[0] != other[0]:
        return False
    return bool(other[3] and other[1] <= one[1] and one[2] <= other[2])


def view_of(whole: Any, size: Sequence[int], stride: Sequence[int], offset: int) -> Any:
    """Return a view of a tensor by its extents, strides and offset from the tensor's beginning."""
    return whole.as_strided(size, stride, whole.storage_offset() + offset)


def _describe(returned: Sequence[Any], numbers: Mapping[int, int], made: Sequence[Any]) -> list[list[Any] | int | None]:
    """Return the facts of :attr:`Structure.returned`; None stands for the first occurrence of each tensor in `made`."""
    left = {*map(id, made)}
    found: list[list[Any] | int | None] = []
    for each in returned:
        if not isinstance(each, torch.Tensor):
            found.append(_constant(each))
        elif id(each) in left:
            left.remove(id(each))
            found.append(None)
        else:
            found.append(numbers[id(each)])
    return found
