"""A network that :func:`tvmconv.relax.export` wrote: what it takes, called, timed operator by operator.

It runs in TVM's Relax virtual machine, so this process needs the package apache-tvm, but no compiler and none of the rest
of tvmconv's compile half.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from ..errors import BundleError, missing_extra
from ..runtime.library import open_library
from ..runtime.networks.base import LEAST_CALLS, Array, CompiledNetwork, Operator, library_path
from ..runtime.networks.file import RELAX, read_file
from ..runtime.processors import kernel_threads
from .kernels.calls import register_calls

try:
    import tvm
    from tvm import relax
except ImportError:
    raise missing_extra("compile", "tvm") from None

# The function of a library that describes it, and the one that computes.
DESCRIBE, MAIN = "tvmconv_describe", "main"
# What the virtual machine does itself: shapes checked, memory allocated.
_MACHINE = "vm.builtin"


class Network(CompiledNetwork):
    """A compiled network, called with an array for each input.

    Parameters
    ----------
    path
        The library.
    bundle
        The bundle whose kernels it calls, if it was compiled to call them.

    Attributes
    ----------
    inputs, outputs
        What it takes and gives.
    description
        All that the library says of itself: versions, target, and what became of each convolution.

    Raises
    ------
    BundleError
        If it is no library of a network, or truncated; or `bundle` is missing, another than that it was compiled with, or damaged.
    UnsupportedMachineError
        If this machine lacks a CPU feature that its code uses.
    VerificationError
        If ``tvmconv verify`` found one of the bundle's kernels wrong.
    """

    def __init__(self, path: str | os.PathLike[str], bundle: str | os.PathLike[str] | None = None) -> None:
        path = read_file(library_path(path), RELAX).path
        # Of operators that TVM's runtime has, such as sorting; it reads this when it starts them.
        os.environ.setdefault("TVM_NUM_THREADS", str(kernel_threads()))
        try:
            executable = open_library(path)
            register_calls(executable, path, bundle)
            self._machine = relax.VirtualMachine(executable, tvm.cpu())
            description = json.loads(str(self._machine[DESCRIBE]()))
        except (OSError, RuntimeError, AttributeError, ValueError) as error:
            raise BundleError(f"{path} is no network that tvmconv compile wrote: {error}") from None
        self._describe(path, description)
        self._main = self._machine[MAIN]

    def __call__(self, **arrays: Any) -> dict[str, Array]:
        """Return the outputs by name.

        Parameters
        ----------
        **arrays
            The inputs by name, in their shapes and types: NumPy arrays, torch CPU tensors, or arrays with ``__dlpack__``.

        Raises
        ------
        InputError
            If an input is missing, too many, of another shape or type, or no array that kernels take.
        """
        found = self._main(*self._tensors(arrays))
        results = [found] if isinstance(found, tvm.runtime.Tensor) else list(found)
        return {each.name: result.numpy() for each, result in zip(self.outputs, results, strict=True)}

    def call(self, arrays: Mapping[str, Any]) -> Any:
        """Return a call without arguments that computes the outputs of some inputs, to be timed."""
        tensors = self._tensors(arrays)
        return lambda: self._main(*tensors)

    def operators(self, arrays: Mapping[str, Any], seconds: float) -> list[Operator]:
        """Time each operator for about `seconds` in all; return them, what takes longest first.

        The clock costs a microsecond a call. By how much they take longer together than a call of the network without it is
        taken off, each call's part alike.
        """
        tensors = self._tensors(arrays)
        now: defaultdict[str, float] = defaultdict(float)
        calls: Counter[str] = Counter()
        started = 0.0

        def instrument(_function: Any, name: str, before: bool, _result: Any, *_arguments: Any) -> int:
            nonlocal started
            if before:
                started = time.perf_counter()
            else:
                name = _MACHINE if name.startswith(_MACHINE) else name
                now[name] += time.perf_counter() - started
                calls[name] += 1
            return 0

        self._main(*tensors)
        samples: list[defaultdict[str, float]] = []
        whole = float("inf")
        end = time.perf_counter() + seconds
        while len(samples) < LEAST_CALLS or time.perf_counter() < end:
            begun = time.perf_counter()
            self._main(*tensors)
            whole = min(whole, time.perf_counter() - begun)
            now, calls = defaultdict(float), Counter()
            self._machine.set_instrument(instrument)
            self._main(*tensors)
            self._machine.module["set_instrument"](None)
            samples.append(now)
        least = {name: min(each[name] for each in samples) for name in calls}
        cost = max(sum(least.values()) - whole, 0) / calls.total()
        found = [
            Operator(*self._named(name), count, max(least[name] - count * cost, 0)) for name, count in calls.items()
        ]
        return sorted(found, key=lambda each: -each.seconds)

    def _tensors(self, arrays: Mapping[str, Any]) -> list[Any]:
        given = zip(self._checked(arrays), self.inputs, strict=True)
        return [tvm.runtime.tensor(array.view(each.numpy)) for array, each in given]


def load(path: str | os.PathLike[str], bundle: str | os.PathLike[str] | None = None) -> Network:
    """Return the network in a library; parameters and errors are those of :class:`Network`."""
    return Network(path, bundle)
