"""One problem's kernels called and compared: with the reference, PyTorch, and themselves by other threads and places."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm_ffi

from tvmconv import fills, reference
from tvmconv.accuracy import difference
from tvmconv.runtime.emulation import EmulatedCall, Emulator

from .build import Kernel
from .check import LEAST_FLOPS, LEAST_SECONDS, Case
from .guarded import dirty_allocations, guarded
from .torch_output import torch_output

MANY_THREADS = (2, 3, 4, 7, 12, 24)  # more than eight cut tasks


class Runner:
    """What kernels of one problem are compared with."""

    def __init__(self, case: Case) -> None:
        dirty_allocations()
        self.case = case
        self._draw = random.Random(case.seed)
        self._exact, self._expected = fills.exact_case(case.problem, case.seed % 1000)

    @cached_property
    def _disagreement(self) -> str:
        """How PyTorch's answer differs from the reference; empty if it does not, or has no such operation."""
        problem = self.case.problem
        if find_spec("torch") is None or 0 in (*problem.data_shape, *problem.filter_shape):
            return ""
        # PyTorch's steps are the unit tests'.
        sums = problem.without_epilogue() if problem.is_quantized else problem.with_(epilogue=())
        arrays = self._exact if sums.bias else replace(self._exact, bias=None)
        dtype = fills.numpy_dtype(sums.types.output)
        expected = reference.compute(sums, arrays.data, arrays.filter, arrays.bias).astype(dtype)
        return difference(torch_output(problem, arrays).astype(dtype), expected, "exact", sums)

    @cached_property
    def _normal(self) -> fills.Arrays:
        return fills.random_fill(self.case.problem, self.case.seed % 1000)

    @cached_property
    def _normal_expected(self) -> npt.NDArray[Any]:
        return reference.compute(self.case.problem, **self._normal.given())

    def run(self, kernel: Kernel, numerical_class: str) -> tuple[str, str]:
        """Return what kind of outcome a kernel has, and the detail."""
        if self._disagreement:
            return "reference", f"PyTorch differs from the reference: {self._disagreement}"
        for packed in [False] * kernel.plain + [True] * (kernel.packed is not None):
            what = "with the filter prepacked, " if packed else ""
            for fill in ("exact", "normal"):
                arrays = self._exact if fill == "exact" else self._normal
                many = self._draw.choice(MANY_THREADS)
                one = self._call(kernel, arrays, packed, threads=1, at_end=True)
                other = self._call(kernel, arrays, packed, threads=many, at_end=False)
                wrong = ""
                if fill == "exact":
                    wrong = difference(one, self._expected, numerical_class, self.case.problem)
                elif numerical_class != "exact":
                    wrong = difference(one, self._normal_expected, numerical_class, self.case.problem)
                if wrong:
                    return "wrong", f"{what}on {fill} data, {wrong}"
                if one.tobytes() != other.tobytes():
                    return "bits", f"{what}on {fill} data, {many} threads and another place give other bits than one"
        return "right", ""

    def _call(
        self, kernel: Kernel, arrays: fills.Arrays, packed: bool, *, threads: int, at_end: bool
    ) -> npt.NDArray[Any]:
        """Return the output; what is not written stays not a number."""
        problem = self.case.problem
        data, filter_, *others = (guarded(array, at_end=at_end) for array in arrays.given().values())
        unwritten = fills.blank_output(problem)
        output = guarded(unwritten, at_end=at_end, writable=True)
        library = tvm_ffi.load_module(kernel.path)
        library["tvmconv_set_threads"](threads)

        def call(name: str, *given: npt.NDArray[Any]) -> None:
            library[name + kernel.ending](*map(tvm_ffi.from_dlpack, given))

        if packed:
            assert kernel.packed is not None
            memory = guarded(np.zeros(*kernel.packed), at_end=at_end, writable=True)
            call("tvmconv_pack", filter_, memory)
            filter_ = memory
        if output.size:
            call("tvmconv_packed" if packed else "tvmconv_kernel", data, filter_, *others, output)
        return output.view(unwritten.dtype)


class EmulatedRunner(Runner):
    """The same of kernels of another instruction set, under an emulator: a process a call, whose arrays all end at a guard page."""

    def __init__(self, case: Case, emulator: Emulator) -> None:
        super().__init__(case)
        self._emulator = emulator

    def _call(
        self, kernel: Kernel, arrays: fills.Arrays, packed: bool, *, threads: int, at_end: bool
    ) -> npt.NDArray[Any]:
        problem = self.case.problem
        data, filter_, *others = (_bits(array) for array in arrays.given().values())
        output = fills.blank_output(problem)
        calls: list[EmulatedCall] = []
        if packed:
            assert kernel.packed is not None
            memory = np.zeros(*kernel.packed)
            calls.append((f"tvmconv_pack{kernel.ending}", (filter_, memory)))
            filter_ = memory
        if output.size:
            name = "tvmconv_packed" if packed else "tvmconv_kernel"
            calls.append((name + kernel.ending, (data, filter_, *others, _bits(output))))
        seconds = LEAST_SECONDS + problem.flops / LEAST_FLOPS
        self._emulator.run(Path(kernel.path), calls, seconds, threads)
        return output


def _bits(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array as kernels take it: bfloat16 as uint16."""
    return array.view(np.uint16) if array.dtype.name == "bfloat16" else array
