"""MetaSchedule's TuneContexts, made without the seconds that they take to load tensor intrinsics."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import tvm
from tvm.s_tir.meta_schedule import TuneContext

INTRINSICS = "tvm.s_tir.tensor_intrin"


def tune_context(module: tvm.IRModule, **named: Any) -> TuneContext:
    """Return a TuneContext of one thread, as the spaces of this project need it: they name no tensor intrinsic.

    Parameters
    ----------
    module, named
        As for ``tvm.s_tir.meta_schedule.TuneContext``.
    """
    with _without_intrinsics():
        return TuneContext(module, num_threads=1, **named)


@contextmanager
def _without_intrinsics() -> Iterator[None]:
    """Let an import of the tensor intrinsics, which takes 17 s, find an empty module."""
    if INTRINSICS in sys.modules:
        yield
        return
    sys.modules[INTRINSICS] = ModuleType(INTRINSICS)
    try:
        yield
    finally:
        del sys.modules[INTRINSICS]
