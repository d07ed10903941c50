"""onnxruntime's answers from a process beside the one that compiles: no thread of Python runs while a session is opened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import finalize

import onnxruntime.capi.onnxruntime_pybind11_state

from ...errors import TvmconvError
from ...frontends.shapes import Bucket
from ...network.read.onnx.compare import open_compared, original_model, run_session
from ...network.read.onnx.free import Free
from ...network.read.onnx.reader import fix_shapes
from ...support.workers import Worker

if TYPE_CHECKING:
    from onnx import ModelProto

    from ...runtime.networks.tensors import Array


class Compared(NamedTuple):
    """A model to compare with; parameters of `fix_shapes`."""

    source: str
    bucket: Bucket
    cut: Sequence[str]
    free: Free

    def read(self, model: ModelProto | None = None) -> ModelProto:
        """Return the model for onnxruntime; `model` is the result of `fix_shapes`, if there is one."""
        model = model or fix_shapes(self.source, self.bucket, self.cut, free=self.free)
        return model if self.free else original_model(self.source, model, self.bucket, self.cut)


class SessionBeside:
    """Session that another process opens and runs."""

    def __init__(self, compared: Compared) -> None:
        self._worker: Worker[Any, Any] = Worker(f"{__name__}:answer", 1)
        self._calls = ThreadPoolExecutor(1)
        self._calls.submit(self._worker.call, compared)
        self._close = finalize(self, self._worker.close)

    def run(self, arrays: Mapping[str, Array]) -> list[Array] | None:
        """Return the outputs for inputs by name; None if the process fails."""
        with suppress(TvmconvError):
            found: list[Array] | None = self._calls.submit(self._worker.call, dict(arrays)).result()
            return found
        return None


def imported_bytes() -> int:
    """Return the size of the library that such a process loads."""
    return Path(onnxruntime.capi.onnxruntime_pybind11_state.__file__).stat().st_size


_opened: list[Any] = []


def answer(task: Compared | dict[str, Array]) -> list[Array] | None:
    """Open the session of a model, or run it, in the other process."""
    if isinstance(task, Compared):
        _opened.append(open_compared(task.read()))
        return None
    return run_session(_opened[0], task)
