"""Recording of what code reads, beside other functions of Python's hook for profilers."""

import cProfile
import gc
import sys
from types import FrameType
from typing import Any

import pytest

pytest.importorskip("torch")

from tvmconv.torch.guards.reads import name_of, record


class Model:
    flag = True


def answer(model: Model) -> bool:
    return model.flag


def test_a_profiler_goes_on() -> None:
    profiler = cProfile.Profile()
    profiler.enable()
    try:
        reads = record(lambda: answer(Model()))
        assert sys.getprofile() is profiler
    finally:
        profiler.disable()
    assert name_of(answer.__code__) in reads.ran and "flag" in reads.names


def test_a_hook_goes_on() -> None:
    def see(frame: FrameType, event: str, value: Any) -> None:
        """Do nothing."""

    sys.setprofile(see)
    try:
        record(lambda: answer(Model()))
        assert sys.getprofile() is see
    finally:
        sys.setprofile(None)


def test_collections_of_garbage_are_no_part() -> None:
    """PyTorch collects of its own accord, and test frameworks count how long that takes."""

    def count(phase: str, info: dict[str, int]) -> None:
        """Do nothing."""

    gc.callbacks.append(count)
    try:
        reads = record(gc.collect)
        assert gc.callbacks[-1] is count
    finally:
        gc.callbacks.remove(count)
    assert name_of(count.__code__) not in reads.ran
