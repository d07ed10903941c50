"""What the libraries of networks have in common, whichever of the two formats of ``tvmconv compile`` they are of."""

from __future__ import annotations

import os
import shlex
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy import ndarray

from ...checks import as_path
from ...errors import BundleError, InputError, UnsupportedMachineError
from ...isa.machine import missing_features
from ..arrays import any_view

Array = npt.NDArray[Any]
# How often an operator is timed at the least.
LEAST_CALLS = 5


@dataclass(frozen=True)
class Tensor:
    """An input or output of a network."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.name} ({'x'.join(map(str, self.shape)) or 'a number'} {self.dtype})"

    @property
    def numpy(self) -> np.dtype[Any]:
        """Its type; bf16, which NumPy has not, is that of ml_dtypes."""
        if self.dtype == "bfloat16":
            import ml_dtypes

            return np.dtype(ml_dtypes.bfloat16)
        return np.dtype(self.dtype)


@dataclass(frozen=True)
class Operator:
    """What one operator of a network takes.

    Attributes
    ----------
    name
        The signature of our kernel, or the name of a function between kernels.
    ours
        Whether it is a kernel.
    calls
        How often the network calls it.
    seconds
        All these calls together, the least of all times.
    """

    name: str
    ours: bool
    calls: int
    seconds: float


class CompiledNetwork(ABC):
    """A network of either format, called with an array for each input.

    Attributes
    ----------
    inputs, outputs
        What it takes and gives.
    description
        All that the library says of itself.
    """

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    description: dict[str, Any]

    @abstractmethod
    def __call__(self, **arrays: Any) -> dict[str, Array]:
        """Return the outputs by name."""

    @abstractmethod
    def call(self, arrays: Mapping[str, Any]) -> Any:
        """Return a call without arguments that computes the outputs of some inputs, to be timed."""

    @abstractmethod
    def operators(self, arrays: Mapping[str, Any], seconds: float) -> Sequence[Operator]:
        """Time each operator for about `seconds` in all; return them, what takes longest first."""

    def random_inputs(self) -> dict[str, Array]:
        """Return inputs to try it on, the same in every call: normal numbers, and ones for integers."""
        return random_arrays(self.inputs)

    def _describe(self, path: Path, description: dict[str, Any]) -> None:
        """Keep what the library says; raise UnsupportedMachineError if this machine lacks a CPU feature that its code uses."""
        self.description = description
        if missing := missing_features(description["features"]):
            raise UnsupportedMachineError(
                f"{path} is for {description['target']}; this machine's CPU lacks {', '.join(missing)}"
            )
        self.inputs, self.outputs = (tensors_of(description, which) for which in ("inputs", "outputs"))
        self._input_names = [each.name for each in self.inputs]
        self._names = {row["function"]: row["signature"] for row in description["report"] if row["function"]}

    def _named(self, function: str) -> tuple[str, bool]:
        """Return what a function of the library is called outside, and whether it is a kernel."""
        return self._names.get(function, function), function in self._names

    def _checked(self, arrays: Mapping[str, Any]) -> list[Array]:
        """Return the inputs in their order, C-contiguous, of bf16 the bits; raise InputError if the network does not take them."""
        if len(arrays) != len(self.inputs) or not all(map(arrays.__contains__, self._input_names)):
            raise InputError(f"given are {', '.join(arrays) or 'no inputs'}; the network takes {self._wanted()}")
        found: list[Array] = []
        for name, shape, dtype in self._usual:  # which is told in little time
            value = arrays[name]
            usual = type(value) is ndarray and value.dtype == dtype and value.shape == shape
            found.append(value if usual and value.flags.c_contiguous else self._taken(len(found), value))
        return found

    @cached_property
    def _usual(self) -> list[tuple[str, tuple[int, ...], np.dtype[Any]]]:
        return [(each.name, each.shape, each.numpy) for each in self.inputs]

    def _taken(self, number: int, value: Any) -> Array:
        wanted = self.inputs[number]
        array, dtype = any_view(wanted.name, np.asarray(value) if isinstance(value, np.generic) else value)
        if array.shape != wanted.shape or dtype != wanted.dtype:
            raise InputError(f"given is {Tensor(wanted.name, array.shape, dtype)}; the network takes {self._wanted()}")
        return np.ascontiguousarray(array).reshape(wanted.shape)  # a number has become an array of one

    def _wanted(self) -> str:
        return ", ".join(map(str, self.inputs))


def tensors_of(description: Mapping[str, Any], which: str) -> tuple[Tensor, ...]:
    """Return the ``"inputs"`` or ``"outputs"`` that a network's description has."""
    return tuple(Tensor(each["name"], tuple(each["shape"]), each["dtype"]) for each in description[which])


def random_arrays(tensors: Iterable[Tensor]) -> dict[str, Array]:
    """Return arrays by name, the same in every call: normal numbers, and ones for integers."""
    rng = np.random.default_rng(0)
    return {
        each.name: np.ones(each.shape, each.numpy)
        if each.numpy.kind in "biu"
        else np.asarray(rng.standard_normal(each.shape), each.numpy)
        for each in tensors
    }


def library_path(path: str | os.PathLike[str]) -> Path:
    """Return the path of a network's library; raise BundleError if there is something else, or nothing."""
    path = as_path("the network's path", path)
    if path.is_dir():
        from ..bundle import MANIFEST  # a process that loads a network needs nothing else of it

        if (path / MANIFEST).exists():
            raise BundleError(
                f"{str(path)!r} is a bundle, of convolutions alone; a network is what tvmconv compile writes, which takes a"
                " bundle's kernels by --format relax --bundle"
            )
        raise BundleError(f"{str(path)!r} is a folder; give the library in it that tvmconv compile wrote")
    if not path.is_file():
        command = f"tvmconv compile MODEL.onnx -o {shlex.quote(str(path))}"
        raise BundleError(f"there is no file {str(path)!r}; write it with: {command}")
    return path
