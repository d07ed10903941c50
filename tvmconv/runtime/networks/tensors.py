"""Inputs and outputs of networks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import InputError
from ..arrays import any_view

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Tensor:
    """An input or output of a network; free extents in its shape are names, or expressions of names."""

    name: str
    shape: tuple[Any, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.name} ({'x'.join(map(str, self.shape)) or 'a number'} {self.dtype})"

    @property
    def numpy(self) -> np.dtype[Any]:
        """NumPy's type; for bf16, which NumPy lacks, that of ml_dtypes."""
        if self.dtype == "bfloat16":
            import ml_dtypes

            return np.dtype(ml_dtypes.bfloat16)
        return np.dtype(self.dtype)


def tensors_of(description: Mapping[str, Any], which: str) -> tuple[Tensor, ...]:
    """Return the ``"inputs"`` or ``"outputs"`` of a network's description."""
    return tuple(Tensor(each["name"], tuple(each["shape"]), each["dtype"]) for each in description[which])


def random_arrays(tensors: Iterable[Tensor]) -> dict[str, Array]:
    """Return arrays by name, the same in every call: normal random numbers, and ones for integers."""
    rng = np.random.default_rng(0)
    return {
        each.name: np.ones(each.shape, each.numpy)
        if each.numpy.kind in "biu"
        else np.asarray(rng.standard_normal(each.shape), each.numpy)
        for each in tensors
    }


def put_in_range(
    arrays: dict[str, Array], call: Callable[[dict[str, Array]], Any], refusal: type[Exception]
) -> dict[str, Array]:
    """Return random arrays with zeros for integers where ones are refused as indices: of one input, else of all.

    As few as possible are zeros: those of an attention mask would hide all that it masks.

    Parameters
    ----------
    arrays
        The arrays, returned if no others are taken either. Without integers, they are not tried.
    call
        Function that takes such arrays.
    refusal
        The error by which it refuses them.
    """
    zeros = {name: np.zeros_like(each) for name, each in arrays.items() if each.dtype.kind in "iu"}
    for each in ({}, *({name: zero} for name, zero in zeros.items()), zeros) if zeros else ():
        with suppress(refusal):
            call(arrays | each)
            return arrays | each
    return arrays


def fits(tensor: Tensor, shape: Sequence[int]) -> bool:
    """Return whether a shape fits a tensor, whose free extents may have any size."""
    return len(shape) == len(tensor.shape) and all(
        isinstance(wanted, str) or wanted == size for wanted, size in zip(tensor.shape, shape, strict=True)
    )


def check_arrays(arrays: Mapping[str, Any], tensors: Sequence[Tensor]) -> list[Array]:
    """Return arrays, given by name, in the order of the tensors, C-contiguous, bf16 as its bits; raise InputError if they do not fit."""
    wanted = ", ".join(map(str, tensors))
    if sorted(arrays) != sorted(each.name for each in tensors):
        raise InputError(f"{', '.join(arrays) or 'no input'} was given; the network takes {wanted}")
    found = []
    for each in tensors:
        value = arrays[each.name]
        array, dtype = any_view(each.name, np.asarray(value) if isinstance(value, np.generic) else value)
        if not fits(each, array.shape) or dtype != each.dtype:
            raise InputError(f"{Tensor(each.name, array.shape, dtype)} was given; the network takes {wanted}")
        found.append(np.ascontiguousarray(array).reshape(array.shape))  # ascontiguousarray adds an axis to scalars
    return found
