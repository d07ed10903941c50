"""Calls of a model with examples: its answers, comparisons of these, and its changes."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from ..errors import InputError
from .flat import distinct, find_views, view_of
from .objects import take_apart
from .rewritten import copied_model
from .unchanged import put_back

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
# Relative error of folding and transforms in f32 and f64, and in types of fewer digits.
_TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-3}
_COARSE = 5e-2
# Allowed multiple of PyTorch's own error in such a type, where that is large.
_WORSE = 2
# Answers that determine PyTorch's error: the largest of so many normally distributed errors is exceeded twofold in one case of 200.
_ROUNDINGS = 8

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def print_progress(done: int, total: int, what: str) -> None:
    """Print to stderr which kernel was built."""
    print(f"tvmconv: built {done} of {total}: {what}", file=sys.stderr, flush=True)


def check_model(model: Any, dtype: Any, caller: str) -> None:
    """Raise InputError if a model is no module or in training mode, or cannot be converted to a type."""
    if not isinstance(model, nn.Module):
        raise InputError(f"model is a {type(model).__name__}; give a torch.nn.Module")
    if model.training:
        raise InputError(f"the model is in training mode; {caller} is for inference: call model.eval() first")
    if dtype is not None and dtype not in DTYPES:
        raise InputError(f"dtype is {dtype!r}; allowed: None, {', '.join(map(str, DTYPES))}")


def as_examples(given: Any) -> list[Arguments]:
    """Return a caller's example inputs, one or a list, as positional and named arguments; InputError for other objects."""
    return [*map(as_example, given)] if isinstance(given, list) and given else [as_example(given)]


def as_example(given: Any) -> Arguments:
    """Return one example's arguments; InputError for other objects."""
    if isinstance(given, torch.Tensor):
        return (given,), {}
    if isinstance(given, tuple):
        return given, {}
    if isinstance(given, Mapping):
        return (), dict(given)
    raise InputError(
        f"example_inputs is a {type(given).__name__}; give a tensor, a tuple of positional arguments, or a dict of named ones;"
        " tvmconv.torch.optimize takes a list of such for several shapes, too"
    )


def cast(tensor: Any, dtype: Any) -> Any:
    """Return a tensor, converted to a type if it has a floating-point one."""
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def run(model: nn.Module, example: Arguments) -> tuple[Any, dict[str, bool]]:
    """Return a model's answer to an example, and for each attribute that its code wrote whether it is as before, by name.

    The model and the example are not changed, and random numbers are the same in each run.
    """
    args, kwargs = copy_tensors(example)
    with torch.no_grad(), torch.random.fork_rng(devices=[]), put_back(model) as written:
        torch.manual_seed(0)
        answer = copy_answer(model(*args, **kwargs))
    return answer, written


def copy_tensors(values: Any) -> Any:
    """Return arguments or answers with copies of their tensors, in the same memory order."""
    return pytree.tree_map_only(torch.Tensor, torch.clone, values)


def copy_answer(answer: Any) -> Any:
    """Return an answer with copies of its tensors; views of others become views of the copies."""
    tensors = distinct(pytree.tree_leaves(answer))
    views = find_views(tensors)
    copies = [each.clone() if view is None else None for each, view in zip(tensors, views, strict=True)]
    for number, view in enumerate(views):
        if view is not None:
            copies[number] = view_of(copies[view[0]], *view[1:])
    made = {id(each): copied for each, copied in zip(tensors, copies, strict=True)}
    return pytree.tree_map_only(torch.Tensor, lambda each: made[id(each)], answer)


def is_coarse(values: Any) -> bool:
    """Return whether one of some tensors has a type of few digits."""
    return any(isinstance(each, torch.Tensor) and each.dtype in (torch.float16, torch.bfloat16) for each in values)


def is_close(given: Any, expected: Any, coarse: bool = False) -> bool:
    """Return whether two answers differ by no more than folding and transforms explain.

    Parameters
    ----------
    coarse
        Whether they were computed in a type of few digits, even if they have another.
    """
    given, form = pytree.tree_flatten(take_apart(given))
    expected, expected_form = pytree.tree_flatten(take_apart(expected))
    return form == expected_form and all(_is_close_leaf(*each, coarse) for each in zip(given, expected, strict=True))


def is_no_worse(given: Any, exact: Any, roundings: Iterable[tuple[Any, Any]]) -> bool:
    """Return whether an answer's error against higher precision is about PyTorch's own: rounding accumulates in deep networks.

    Parameters
    ----------
    given, exact
        The answer, and that of higher precision.
    roundings
        Pairs of PyTorch's answers in its type and in higher precision, taken until their largest rounding error in each
        tensor allows the answer's: where sums cancel, a single answer may be exact by chance.
    """
    if pytree.tree_structure(take_apart(given)) != pytree.tree_structure(take_apart(exact)):
        return False
    ours, right = _numbers(given), _numbers(exact)
    allowed = [0.0] * len(right)
    for pair in roundings:
        theirs = [*map(_numbers, pair)]
        if {len(each) for each in theirs} != {len(right)}:
            return False
        allowed = [max(each) for each in zip(allowed, map(_error, *theirs), strict=True)]
        if all(map(_is_within, ours, right, allowed)):
            return True
    return False


def draw_roundings(module: nn.Module, example: Arguments) -> Iterator[tuple[Any, Any]]:
    """Yield a module's answers in its type of few digits and in f32, with weights that differ by about one rounding."""
    narrow = copied_model(module)
    weights = [each for each in (*narrow.parameters(), *narrow.buffers()) if each.is_floating_point()]
    own = [each.detach().clone() for each in weights]
    generator = torch.Generator().manual_seed(0)
    for _ in range(_ROUNDINGS):
        for weight, value in zip(weights, own, strict=True):
            change = torch.rand(value.shape, generator=generator) * 2 - 1
            weight.data.copy_(value * (1 + change * torch.finfo(value.dtype).eps))
        yield run(narrow, example)[0], run_exactly(narrow, example)


def run_exactly(module: nn.Module, example: Arguments) -> Any:
    """Return the answer of a module in a type of few digits, computed in f32.

    Raises
    ------
    RuntimeError
        If its code can only compute in its own type.
    """
    wide = pytree.tree_map_only(torch.Tensor, partial(cast, dtype=torch.float32), example)
    return run(copied_model(module).float(), wide)[0]


def _numbers(answer: Any) -> list[torch.Tensor]:
    """Return an answer's floating-point tensors in f64."""
    leaves = pytree.tree_leaves(take_apart(answer))
    return [each.double() for each in leaves if isinstance(each, torch.Tensor) and each.is_floating_point()]


def _error(rounded: torch.Tensor, exact: torch.Tensor) -> float:
    kept = exact.isfinite() & rounded.isfinite()
    return float((rounded[kept] - exact[kept]).norm())


def _is_within(given: torch.Tensor, exact: torch.Tensor, allowed: float) -> bool:
    """Return whether a tensor's error is within PyTorch's own, doubled, and the tolerance of its type."""
    if given.shape != exact.shape or not torch.equal(given.isfinite(), exact.isfinite()):
        return False
    return _error(given, exact) <= _WORSE * allowed + _COARSE * float(exact[exact.isfinite()].norm())


def _is_close_leaf(given: Any, expected: Any, coarse: bool) -> bool:
    if isinstance(expected, Mapping) or (is_dataclass(expected) and not isinstance(expected, type)):
        found, right = (dict(each if isinstance(each, Mapping) else vars(each)) for each in (given, expected))
        return type(given) is type(expected) and is_close(found, right, coarse)
    if not isinstance(expected, torch.Tensor):
        return given is expected or bool(given == expected)
    if given.shape != expected.shape or given.dtype != expected.dtype:
        return False
    if expected.is_complex():
        given, expected = torch.view_as_real(given), torch.view_as_real(expected)
    if not expected.is_floating_point():
        return True  # rounding may change a class or an index
    finite = expected.isfinite()
    if not finite.all():  # for example from a mask of infinities
        if not torch.allclose(given[~finite], expected[~finite], equal_nan=True):
            return False
        given, expected = given[finite], expected[finite]
    error = (given.double() - expected.double()).norm()
    tolerance = _COARSE if coarse else _TOLERANCE.get(expected.dtype, _COARSE)
    return bool(error <= tolerance * expected.double().norm())
