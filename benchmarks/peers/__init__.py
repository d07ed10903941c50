"""The libraries that tvmconv is compared with, one file each.

Each file has ``prepare(problem, arrays, option, threads) -> Prepared``. A library may be several peers: how it is best
called differs from shape to shape, and the fastest counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tvmconv.problem import Problem

# Types of problems of integers, whose outputs are rounded to 8 bits.
INTEGERS, ROUNDING = "u8s8u8", "scale-q(1,128)"


class UnsupportedError(Exception):
    """A problem that a library does not compute; the text says why."""


@dataclass(frozen=True)
class Peer:
    """One way to call a library.

    Attributes
    ----------
    module
        The file of this folder that calls it. Peers of one module share a process.
    package
        What pip installs it by.
    option
        Passed to the module's ``prepare``: the layout of data and output, ``"NXC"`` or ``"NCX"``, or its own.
    """

    module: str
    package: str
    option: str


# Data in the other layout than the problem's is transposed beforehand: what counts is how fast the library can be.
PEERS = {
    "pytorch_nxc": Peer("pytorch", "torch", "NXC"),
    "pytorch_ncx": Peer("pytorch", "torch", "NCX"),
    "pytorch_packed": Peer("pytorch_packed", "torch", "NXC"),
    "onnxruntime": Peer("onnxruntime", "onnxruntime", "NCX"),
    "openvino_nxc": Peer("openvino", "openvino", "NXC"),
    "openvino_ncx": Peer("openvino", "openvino", "NCX"),
}


@dataclass(frozen=True)
class Prepared:
    """A problem made ready for a library.

    Attributes
    ----------
    call
        What is timed.
    answer
        Calls it and returns its result in the problem's layout, in a type that holds every value of the problem's.
    """

    call: Callable[[], Any]
    answer: Callable[[], npt.NDArray[Any]]


def check_supported(problem: Problem) -> None:
    """Raise UnsupportedError for problems that no peer computes: without multiplications, or with epilogues other than rounding."""
    if problem.is_empty or problem.is_constant:
        raise UnsupportedError("no multiplications")
    if problem.epilogue and not problem.is_quantized:
        raise UnsupportedError("it has an epilogue, and peers compute convolutions alone")


def as_integers(problem: Problem) -> Problem:
    """Return the convolution of integers that has a problem's sizes and layouts."""
    return problem.with_(dtype=INTEGERS, epilogue=ROUNDING)


def data_as(array: npt.NDArray[Any], problem: Problem, layout: str) -> npt.NDArray[Any]:
    """Return data or output of `problem` in `layout`, contiguous."""
    if layout == problem.data_format:
        return array
    axes = (-1, 1) if layout == "NCX" else (1, -1)
    return np.ascontiguousarray(np.moveaxis(array, *axes))


def from_layout(array: npt.NDArray[Any], problem: Problem, layout: str) -> npt.NDArray[Any]:
    """Return a result that is in `layout` in the layout of `problem`."""
    if layout == problem.data_format:
        return array
    return np.moveaxis(array, -1, 1) if layout == "NXC" else np.moveaxis(array, 1, -1)


def filter_as_oix(array: npt.NDArray[Any], problem: Problem) -> npt.NDArray[Any]:
    """Return the filter of `problem` as OIX, contiguous."""
    if problem.filter_format == "OIX":
        return array
    return np.ascontiguousarray(np.moveaxis(np.moveaxis(array, -1, 0), -1, 1))
