"""`Network`: a network's library, called with arrays, timed step by step. It needs tvm-ffi, and nothing that compiles."""

from __future__ import annotations

import os
import shlex
import time
import weakref
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..checks import as_path
from ..errors import BundleError, InputError, UnsupportedMachineError
from ..isa.machine import missing_features
from .arrays import LINE_BYTES
from .bundle import MANIFEST
from .library import open_library
from .network_file import read_file
from .processors import kernel_threads

Array = npt.NDArray[Any]
_LEAST_CALLS = 5


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
    bytes
        What these calls read and write, each array once.
    """

    name: str
    ours: bool
    calls: int
    seconds: float
    bytes: int = 0


class Network:
    """A compiled network, called with an array for each input.

    Parameters
    ----------
    path
        The library.

    Attributes
    ----------
    inputs, outputs
        What it takes and gives.
    description
        All that the library says of itself: versions, target, steps, and what became of each convolution.

    Raises
    ------
    BundleError
        If it is no library of a network, or cut off.
    UnsupportedMachineError
        If this machine lacks a CPU feature that its code uses.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        path = as_path("the network's path", path)
        if (path / MANIFEST).exists():
            raise BundleError(
                f"{str(path)!r} is a bundle, of convolutions alone; a network is what tvmconv compile writes"
            )
        if path.is_dir():
            raise BundleError(f"{str(path)!r} is a folder; give the library in it that tvmconv compile wrote")
        if not path.is_file():
            command = f"tvmconv compile MODEL.onnx -o {shlex.quote(str(path))}"
            raise BundleError(f"there is no file {str(path)!r}; write it with: {command}")
        self.file = read_file(path)
        self.description = self.file.description
        if missing := missing_features(self.description["features"]):
            raise UnsupportedMachineError(
                f"{path} is for {self.description['target']}; this machine's CPU lacks {', '.join(missing)}"
            )
        self.inputs, self.outputs = (
            tuple(Tensor(each["name"], tuple(each["shape"]), each["dtype"]) for each in self.description[which])
            for which in ("inputs", "outputs")
        )
        self._steps = self.description["steps"]
        self._names = {row["function"]: row["signature"] for row in self.description["report"] if row["function"]}
        try:
            library = open_library(path)
            self._run, self._run_openmp = (library[f"tvmconv_network_with_{which}"] for which in ("threads", "openmp"))
            self._handle = library["tvmconv_network_open"]()
            close = library["tvmconv_network_close"]
        except (OSError, RuntimeError, AttributeError) as error:
            raise BundleError(f"{path} cannot be loaded: {str(error).strip()}") from None
        # Not when the process ends, for threads may still be calling it.
        weakref.finalize(self, close, self._handle).atexit = False

    def __reduce__(self) -> tuple[type[Network], tuple[str]]:
        """Copies in other processes load the file."""
        return type(self), (str(self.file.path.absolute()),)

    def __copy__(self) -> Network:
        """Nothing of it changes, so it is its own copy."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Network:
        """Nothing of it changes, so it is its own copy."""
        return self

    def __call__(self, **arrays: npt.ArrayLike) -> dict[str, Array]:
        """Return the outputs by name.

        Parameters
        ----------
        **arrays
            The inputs by name, in their shapes and types.

        Raises
        ------
        InputError
            If an input is missing, too many, or of another shape or type.
        """
        given = self._checked(arrays)
        made = [_empty(each) for each in self.outputs]
        self.run([each.ctypes.data for each in given], [each.ctypes.data for each in made])
        return {each.name: array for each, array in zip(self.outputs, made, strict=True)}

    def run(self, inputs: Sequence[int], outputs: Sequence[int], threads: int = 0, openmp: bool = False) -> None:
        """Compute from addresses to addresses, of arrays that are as :attr:`inputs` and :attr:`outputs` say, C-contiguous.

        Parameters
        ----------
        inputs, outputs
            The addresses; arrays that begin at a cache line (64 bytes) are read and written where they are.
        threads
            How many threads; 0: as bundles have them.
        openmp
            Whether threads are GNU OpenMP's, which PyTorch's are.
        """
        (self._run_openmp if openmp else self._run)(threads or kernel_threads(), self._handle, 0, *inputs, *outputs)

    def call(self, arrays: Mapping[str, npt.ArrayLike]) -> Any:
        """Return a call without arguments that computes the outputs of some inputs, to be timed."""
        given, made = self._checked(arrays), [_empty(each) for each in self.outputs]
        addresses = [each.ctypes.data for each in (*given, *made)]
        threads = kernel_threads()

        def compute() -> list[Array]:
            self._run(threads, self._handle, 0, *addresses)
            return made

        compute.given = given  # type: ignore[attr-defined]  # as long as their addresses
        return compute

    def random_inputs(self) -> dict[str, Array]:
        """Return inputs to try it on, the same in every call: normal numbers, and ones for integers."""
        rng = np.random.default_rng(0)
        return {
            each.name: np.ones(each.shape, each.numpy)
            if each.numpy.kind in "biu"
            else np.asarray(rng.standard_normal(each.shape), each.numpy)
            for each in self.inputs
        }

    def operators(self, arrays: Mapping[str, npt.ArrayLike], seconds: float) -> list[Operator]:
        """Time each operator for about `seconds` in all; return them, what takes longest first."""
        given, made = self._checked(arrays), [_empty(each) for each in self.outputs]
        addresses = [each.ctypes.data for each in (*given, *made)]
        times = np.zeros(max(len(self._steps), 1))
        least = np.full_like(times, np.inf)
        calls, end = 0, time.perf_counter() + seconds
        while calls < _LEAST_CALLS or time.perf_counter() < end:
            self._run(kernel_threads(), self._handle, times.ctypes.data, *addresses)
            np.minimum(least, times, out=least)
            calls += 1
        taken: defaultdict[str, float] = defaultdict(float)
        moved: Counter[str] = Counter()
        for step, each in zip(self._steps, least, strict=False):
            taken[step["function"]] += float(each)
            moved[step["function"]] += step["bytes"]
        count = Counter(step["function"] for step in self._steps)
        found = [
            Operator(self._names.get(name, name), name in self._names, count[name], taken[name], moved[name])
            for name in taken
        ]
        return sorted(found, key=lambda each: -each.seconds)

    def _checked(self, arrays: Mapping[str, npt.ArrayLike]) -> list[Array]:
        wanted = ", ".join(map(str, self.inputs))
        if sorted(arrays) != sorted(each.name for each in self.inputs):
            raise InputError(f"given are {', '.join(arrays) or 'no inputs'}; the network takes {wanted}")
        found = []
        for each in self.inputs:
            array = np.asarray(arrays[each.name])
            if array.shape != each.shape or str(array.dtype) != each.dtype:
                given = Tensor(each.name, array.shape, str(array.dtype))
                raise InputError(f"given is {given}; the network takes {wanted}")
            found.append(np.ascontiguousarray(array))
        return found


def _empty(tensor: Tensor) -> Array:
    """Return an array that begins at a cache line."""
    dtype = tensor.numpy
    size = int(np.prod(tensor.shape, dtype=np.int64)) * dtype.itemsize
    memory = np.empty(size + LINE_BYTES, np.uint8)
    start = -memory.ctypes.data % LINE_BYTES
    return memory[start : start + size].view(dtype).reshape(tensor.shape)


def load_network(path: str | os.PathLike[str]) -> Network:
    """Return the network in a library; parameters and errors are those of :class:`Network`."""
    return Network(path)
