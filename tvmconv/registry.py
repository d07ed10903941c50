"""`Registry`: the kernels of one or several bundles, found by shape, type and attributes."""

from __future__ import annotations

import marshal
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from . import ops
from .arrays import view
from .bundle import Bundle, read_bundle
from .errors import InputError
from .explain import Explanation, explain, not_found
from .kernel import Kernel
from .problem import Problem
from .selection import take_best
from .signature import format_signature, parse_signature

MAX_THREADS = 1024
# Calls remembered with the kernel that serves them; a program calls with fewer distinct shapes than this.
_REMEMBERED_CALLS = 4096
# The attributes of the two operations, in the order in which calls are remembered by them.
_CONVOLUTION = (
    "strides", "pads_begin", "pads_end", "dilations", "auto_pad", "groups", "data_format", "filter_format", "same_rule",
    "weights_format",
)  # fmt: skip
_BACKPROP_DATA = (*_CONVOLUTION, "output_shape", "output_padding")


def load(*paths: str | os.PathLike[str], threads: int | None = None) -> Registry:
    """Open one or several bundles.

    Parameters
    ----------
    paths
        The bundles' folders. Where several have a kernel for one problem, the most specific that this
        machine runs is taken: the most CPU features, then tuned before untuned, then the earlier bundle.
    threads
        Number of threads of each call; None: as many as OpenMP gives (``OMP_NUM_THREADS``, else all
        processors).

    Raises
    ------
    BundleError
        If a folder is no bundle, or its manifest is damaged, foreign or unsafe.
    UnsupportedMachineError
        If all kernels of a bundle need CPU features that this machine lacks.
    InputError
        If `threads` is not a positive number.
    """
    if not paths:
        raise InputError("no bundle was given; give the path of at least one")
    return Registry([read_bundle(path) for path in paths], threads=threads)


class Registry:
    """The kernels of some bundles that this machine can run. Made by :func:`load`.

    It is a read-only mapping from signatures to kernels. Calls are safe from several threads and after
    ``fork``.
    """

    def __init__(self, bundles: Sequence[Bundle], *, threads: int | None = None) -> None:
        if threads is not None and (type(threads) is not int or not 1 <= threads <= MAX_THREADS):
            raise InputError(f"threads is {threads!r}; it must be None or a number from 1 to {MAX_THREADS}")
        self.bundles = tuple(bundles)
        self.threads = threads
        self._taken = take_best(self.bundles)
        self._kernels: dict[str, Kernel] = {}
        self._calls: dict[Any, Kernel] = {}

    def __len__(self) -> int:
        return len(self._taken)

    def __iter__(self) -> Iterator[str]:
        return iter(self._taken)

    def __contains__(self, key: object) -> bool:
        """Whether there is a kernel for a signature or a Problem."""
        if isinstance(key, Problem):
            key = format_signature(key)
        return isinstance(key, str) and key in self._taken

    def __getitem__(self, key: str | Problem) -> Kernel:
        """Return the kernel of a signature or a Problem; errors as for :meth:`lookup`, and SignatureError."""
        if isinstance(key, str) and key in self._taken:
            return self._kernel(key)
        return self.lookup(key if isinstance(key, Problem) else parse_signature(key))

    def lookup(self, problem: Problem) -> Kernel:
        """Return the kernel that computes `problem`.

        Raises
        ------
        KernelNotFoundError
            Naming the nearest kernel there is, the fields that differ, and the command that builds it.
        UnsupportedMachineError
            If there are kernels for it, each for CPU features that this machine lacks.
        InputError
            If `problem` is no Problem.
        """
        if not isinstance(problem, Problem):
            raise InputError(f"lookup takes a Problem, not {problem!r}; a signature's kernel is registry[signature]")
        signature = format_signature(problem)
        if signature not in self._taken:
            raise not_found(self.explain(problem))
        return self._kernel(signature)

    def explain(self, problem: Problem | str) -> Explanation:
        """Return which kernel serves a problem or signature, and why each variant was taken or rejected."""
        problem = parse_signature(problem) if isinstance(problem, str) else problem
        return explain(problem, self.bundles, self._taken)

    def convolution(
        self,
        data: Any,
        filter: Any,
        bias: Any = None,
        *,
        strides: Sequence[int],
        pads_begin: Sequence[int] | None = None,
        pads_end: Sequence[int] | None = None,
        dilations: Sequence[int],
        auto_pad: str | None = None,
        groups: int = 1,
        data_format: str = "NXC",
        filter_format: str = "XIO",
        same_rule: str = "default",
        weights_format: str | None = None,
        out: Any = None,
    ) -> Any:
        """Compute a Convolution; the attributes are those of :func:`tvmconv.ops.convolution`.

        Returns
        -------
        array
            `out` if given, else a new array of the kind of `data`.

        Raises
        ------
        InvalidProblemError
            If the shapes and attributes describe no convolution.
        InputError
            If an array is of a kind, type or layout that no kernel takes.
        KernelNotFoundError, UnsupportedMachineError, BundleError
            As for :meth:`lookup` and :class:`tvmconv.Kernel`.
        """
        attributes = (
            strides, pads_begin, pads_end, dilations, auto_pad, groups, data_format, filter_format, same_rule,
            weights_format,
        )  # fmt: skip
        return self._find(ops.convolution, data, filter, bias, _CONVOLUTION, attributes)(data, filter, bias, out)

    def convolution_backprop_data(
        self,
        data: Any,
        filter: Any,
        output_shape: Sequence[int] | None = None,
        bias: Any = None,
        *,
        strides: Sequence[int],
        pads_begin: Sequence[int] | None = None,
        pads_end: Sequence[int] | None = None,
        dilations: Sequence[int],
        auto_pad: str | None = None,
        output_padding: Sequence[int] | None = None,
        groups: int = 1,
        data_format: str = "NXC",
        filter_format: str = "XIO",
        same_rule: str = "default",
        weights_format: str | None = None,
        out: Any = None,
    ) -> Any:
        """Compute a ConvolutionBackpropData; the attributes are those of :func:`tvmconv.ops.convolution_backprop_data`.

        Returns and raises as :meth:`convolution`.
        """
        attributes = (
            strides, pads_begin, pads_end, dilations, auto_pad, groups, data_format, filter_format, same_rule,
            weights_format, output_shape, output_padding,
        )  # fmt: skip
        kernel = self._find(ops.convolution_backprop_data, data, filter, bias, _BACKPROP_DATA, attributes)
        return kernel(data, filter, bias, out)

    def _find(
        self,
        op: Callable[..., Problem],
        data: Any,
        filter: Any,
        bias: Any,
        names: tuple[str, ...],
        attributes: tuple[Any, ...],
    ) -> Kernel:
        """Return the kernel of a call, by what was remembered of an equal call or else by the operation's rules."""
        key: Any
        try:
            # What is not in the key, the kernel checks: the filter's type, the bias' shape and type.
            # Version 2 of marshal: equal values give equal bytes.
            key = (op, data.shape, data.dtype, filter.shape, bias is None, marshal.dumps(attributes, 2))
            kernel = self._calls.get(key)
        except (AttributeError, TypeError, ValueError):  # arguments of kinds that are not remembered
            key = kernel = None
        if kernel is None:
            kernel = self._resolve(op, data, filter, bias, dict(zip(names, attributes, strict=True)))
            # Only plain attributes have bytes of their own: a NumPy zero of one type has those of another.
            if key is not None and all(map(_is_plain, attributes)):
                if len(self._calls) >= _REMEMBERED_CALLS:
                    self._calls.clear()
                self._calls[key] = kernel
        return kernel

    def _resolve(
        self, op: Callable[..., Problem], data: Any, filter: Any, bias: Any, attributes: dict[str, Any]
    ) -> Kernel:
        arrays = {"data": view("data", data), "filter": view("filter", filter)}
        if bias is not None:
            arrays["bias"] = view("bias", bias)
        types = {name: dtype for name, (_, dtype) in arrays.items()}
        if len(set(types.values())) > 1:
            given = ", ".join(f"{name} {dtype}" for name, dtype in types.items())
            raise InputError(f"the types differ: {given}; all must be the same")
        shapes = {name: array.shape for name, (array, _) in arrays.items()}
        return self.lookup(
            op(shapes["data"], shapes["filter"], bias_shape=shapes.get("bias"), dtype=types["data"], **attributes)
        )

    def _kernel(self, signature: str) -> Kernel:
        kernel = self._kernels.get(signature)
        if kernel is None:
            bundle, entry = self._taken[signature]
            kernel = self._kernels.setdefault(signature, Kernel(bundle, entry, self.threads))
        return kernel


def _is_plain(value: Any) -> bool:
    """Whether `value` is None, a text, an int, or a tuple or list of ints, and none of a class of its own."""
    if type(value) is tuple or type(value) is list:
        return all(type(item) is int for item in value)
    return value is None or type(value) in (int, str)
