"""Compiled kernels of random attributes equal the reference, and PyTorch, bit for bit."""

from __future__ import annotations

import random
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from kernels import compile_and_call
from strategies import Call, calls

from tvmconv import algorithms, fills
from tvmconv.compiler import Choice, default_choice, samples
from tvmconv.problem import Problem
from tvmconv.signature import format_signature
from tvmconv.target import Target

HOST = Target.parse("host")
# Enough channels for several vectors and a rest, on a target of any width.
CALLS = calls(largest=17, channels=40)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels")


def torch_output(problem: Problem, arrays: fills.Arrays) -> npt.NDArray[np.float64]:
    """Return PyTorch's output in float64: pads are added to the data, or cut off the output."""
    import torch

    data, filter_ = arrays.data.astype(np.float64), arrays.filter.astype(np.float64)
    if problem.data_format == "NXC":
        data = np.moveaxis(data, -1, 1)
    if problem.filter_format == "XIO":
        filter_ = np.moveaxis(filter_, (-1, -2), (0, 1))
    attributes = {"stride": problem.strides, "dilation": problem.dilations, "groups": problem.groups}
    w = torch.from_numpy(np.ascontiguousarray(filter_))
    inside = tuple(slice(begin, begin + y) for begin, y in zip(problem.pads_begin, problem.out_spatial, strict=True))
    if problem.op == "convolution":
        pads = [(0, 0), (0, 0), *zip(problem.pads_begin, problem.pads_end, strict=True)]
        x = torch.from_numpy(np.pad(data, pads))
        output = getattr(torch.nn.functional, f"conv{problem.rank}d")(x, w, **attributes).numpy()
    else:
        x = torch.from_numpy(np.ascontiguousarray(data))
        output = getattr(torch.nn.functional, f"conv_transpose{problem.rank}d")(x, w, **attributes).numpy()
        longer = [max(place.stop - have, 0) for place, have in zip(inside, output.shape[2:], strict=True)]
        output = np.pad(output, [(0, 0), (0, 0), *((0, more) for more in longer)])[(slice(None), slice(None), *inside)]
    if arrays.bias is not None:
        output = output + arrays.bias.astype(np.float64).reshape(-1, *[1] * problem.rank)
    return np.moveaxis(output, 1, -1) if problem.data_format == "NXC" else output


def check(problem: Problem, folder: Path, choice: Choice | None = None) -> None:
    """Compare a kernel of an exact algorithm with the reference and with PyTorch."""
    choice = choice or default_choice(problem, HOST, "strict")
    note(f"{format_signature(problem)} {choice}")
    arrays, expected = fills.exact_case(problem)
    output = compile_and_call(problem, HOST, folder, arrays, choice)
    np.testing.assert_array_equal(output.astype(np.float64), expected.astype(np.float64))
    if find_spec("torch") is not None:
        np.testing.assert_array_equal(
            output.astype(np.float64), torch_output(problem, arrays).astype(output.dtype).astype(np.float64)
        )


def random_choice(problem: Problem, seed: int) -> Choice:
    """Return any schedule of any exact algorithm."""
    draw = random.Random(seed)
    algorithm = draw.choice(algorithms.applicable(problem, HOST, "strict"))
    sketches = algorithm.sketches(algorithm.define(problem, HOST), HOST)
    number = draw.randrange(len(sketches))
    decisions = tuple(draw.randrange(len(sample.attrs[0])) for sample in samples(sketches[number]))
    return Choice(algorithm.name, number, decisions)


SEEDS = st.integers(0, 2**32)


@settings(max_examples=80)
@given(call=CALLS)
def test_default_schedules(call: Call, folder: Path) -> None:
    check(call.problem(), folder)


@settings(max_examples=40)
@given(call=CALLS, seed=SEEDS)
def test_random_schedules(call: Call, seed: int, folder: Path) -> None:
    check(call.problem(), folder, random_choice(call.problem(), seed))


@pytest.mark.slow
@settings(max_examples=2000, derandomize=False)
@given(call=CALLS, seed=st.none() | SEEDS)
def test_many(call: Call, seed: int | None, folder: Path) -> None:
    """New examples in every run."""
    check(call.problem(), folder, None if seed is None else random_choice(call.problem(), seed))
