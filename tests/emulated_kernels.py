"""Kernels of many algorithms in one library, run by an emulator and compared with the reference."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from campaign.build import compile_all, lowered

from tvmconv import fills
from tvmconv.accuracy import difference
from tvmconv.algorithms import table as algorithms
from tvmconv.lowering.common.entry_points import EntryPoints
from tvmconv.lowering.compiler import Choice, samples, sketches_of
from tvmconv.problem import Problem
from tvmconv.runtime.emulation import EmulatedCall, Emulator
from tvmconv.signature import format_signature
from tvmconv.targets.target import CpuTarget

SECONDS = 300.0


def choices(problem: Problem, target: CpuTarget) -> list[tuple[Choice, bool]]:
    """Return the default schedule of each algorithm, and others of the first, each with whether its filter is prepacked."""
    draw = random.Random(format_signature(problem))
    covering = [each.name for each in algorithms.applicable(problem, target)]
    chosen = [(Choice(name), draw.random() < 0.5) for name in covering]
    first = algorithms.applicable(problem, target, "strict")[0].name
    prepacked = draw.random() < 0.5
    sketches = sketches_of(first, problem, target, entry_points(prepacked))[1]
    number = draw.randrange(len(sketches))
    decisions = tuple(draw.randrange(len(sample.attrs[0])) for sample in samples(sketches[number]))
    return [*chosen, (Choice(first, number, decisions), prepacked)]


def entry_points(prepacked: bool) -> EntryPoints:
    return EntryPoints.PACKED if prepacked else EntryPoints.PLAIN


def plain(array: np.ndarray) -> np.ndarray:
    """Return an array of bf16 as its bits."""
    return array.view(np.uint16) if array.dtype == fills.numpy_dtype("bf16") else array


def check_all(
    tried: Sequence[tuple[Problem, Choice, bool]],
    target: CpuTarget,
    emulator: Emulator | None,
    folder: Path,
    quick: bool,
) -> None:
    """Compile kernels for a target into one library, run them in one emulated process, and compare with the reference."""
    functions = [lowered(problem, target, choice, entry_points(packed)) for problem, choice, packed in tried]
    kernels = compile_all(functions, target, str(folder / "kernels.so"), quick)
    calls: list[EmulatedCall] = []
    outputs = []
    for (problem, choice, _), kernel in zip(tried, kernels, strict=True):
        assert not isinstance(kernel, Exception), f"{format_signature(problem)} by {choice}: {kernel}"
        assert kernel.path == str(folder / "kernels.so")
        arrays, expected = fills.exact_case(problem)
        for packed in [False] * kernel.plain + [True] * (kernel.packed is not None):
            data, filter_, *others = map(plain, arrays.given().values())
            output = np.full(problem.output_shape, 77, fills.numpy_dtype(problem.types.output))
            if packed:
                assert kernel.packed is not None
                memory = np.zeros(*kernel.packed)
                calls.append((f"tvmconv_pack{kernel.ending}", (filter_, memory)))
                filter_ = memory
            name = "tvmconv_packed" if packed else "tvmconv_kernel"
            bits = plain(output)
            calls.append((name + kernel.ending, (data, filter_, *others, bits)))
            outputs.append((problem, choice, output, expected))
    assert emulator is not None
    emulator.run(folder / "kernels.so", calls, SECONDS)
    for problem, choice, output, expected in outputs:
        wrong = difference(output, expected, algorithms.get(choice.algorithm).numerical_class, problem)
        assert not wrong, f"{format_signature(problem)} by {choice}: {wrong}"
