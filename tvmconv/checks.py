"""Checks of single values: each returns the value in its plain type, or raises an error that names the fault."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence, Set
from math import prod
from operator import index
from pathlib import Path

from .errors import InputError, InvalidProblemError, TvmconvError

# Kernels index with 32-bit integers; a larger array or extent would wrap around.
LARGEST = 2**31 - 1
# Choices for the memory that a network takes, and for the size of its files.
MEMORIES = ("default", "small")
FILES = ("default", "small")
# Layers of a quantized network: all in integers as in the model, or in f32 where that is estimated to be faster.
QUANTIZED_LAYERS = ("model", "fastest")


def integer(name: str, value: object, least: int) -> int:
    """Return `value`, an integer of any kind (Python's, NumPy's), as an int in `least`..LARGEST.

    Raises
    ------
    InvalidProblemError
        If it is no integer, or out of range.
    """
    try:
        number = index(value)  # type: ignore[arg-type]
    except TypeError:
        raise InvalidProblemError(
            f"{name} is {value!r}, a {type(value).__name__}; it must be an integer of at least {least}"
        ) from None
    if abs(number) > LARGEST:  # not printed: Python refuses to print integers of thousands of digits
        raise InvalidProblemError(f"{name} is an integer of {number.bit_length()} bits; at most {LARGEST} is supported")
    if isinstance(value, bool) or number < least:
        raise InvalidProblemError(f"{name} is {value!r}; it must be an integer of at least {least}")
    return number


def integers(name: str, values: object, least: int) -> tuple[int, ...]:
    """Return `values`, a sequence of integers, as a tuple of ints in `least`..LARGEST.

    Raises
    ------
    InvalidProblemError
        If it is no sequence, or one of its items no integer in range.
    """
    wrong = f"it must be a sequence of integers, each at least {least}"
    if isinstance(values, (str, bytes, Set, Mapping)):
        raise InvalidProblemError(f"{name} is {values!r}; {wrong}")
    try:
        items = list(values)  # type: ignore[call-overload]
    except TypeError:
        raise InvalidProblemError(f"{name} is {values!r}; {wrong}") from None
    return tuple(integer(f"{name}[{i}]", item, least) for i, item in enumerate(items))


def axes(name: str, values: object, rank: int, least: int) -> tuple[int, ...]:
    """Return `values` as one int per spatial axis, each in `least`..LARGEST.

    Raises
    ------
    InvalidProblemError
        As for :func:`integers`, and if there are not `rank` of them.
    """
    numbers = integers(name, values, least)
    if len(numbers) != rank:
        raise InvalidProblemError(
            f"{name} is {list(numbers)}, {len(numbers)} numbers; {rank} are needed, one per spatial axis"
        )
    return numbers


def choice(name: str, value: object, allowed: Sequence[str], error: type[TvmconvError] = InvalidProblemError) -> None:
    """Check that `value` is one of the texts `allowed`; raise an `error` if it is not."""
    if not isinstance(value, str) or value not in allowed:
        raise error(f"{name} is {value!r}; allowed: {', '.join(allowed)}")


def as_path(name: str, value: str | os.PathLike[str]) -> Path:
    """Return `value` as an absolute path: a process may go to another folder before the path is used.

    Raises
    ------
    InputError
        If `value` is no path, such as None or bytes.
    """
    try:
        return Path(value).absolute()
    except TypeError:
        raise InputError(
            f"{name} is {value!r:.80}, a {type(value).__name__}; it must be a path, a str or os.PathLike"
        ) from None


def within_reach(shape: tuple[int, ...], name: str) -> tuple[int, ...]:
    """Return `shape`, or raise InvalidProblemError where it has more elements than 32-bit indices reach."""
    if prod(shape) > LARGEST:
        raise InvalidProblemError(
            f"{name} would have {prod(shape)} elements; at most {LARGEST} are supported: split the batch, channels or image"
        )
    return shape
