"""Whether a provider makes a model faster: onnxruntime with it, and without, in turns."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np

from ..errors import InputError, TvmconvError, last_line
from .sessions import session, with_shapes

_TURNS = 5
_TURN_SECONDS = 0.15
# Threads of the other session look for work as long after a run.
_PAUSE_SECONDS = 0.02


def race(
    model: str | os.PathLike[str],
    provider: str | os.PathLike[str],
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int] | None = None,
    batch: int | None = None,
    inputs: Mapping[str, np.ndarray] | None = None,
) -> tuple[float, float]:
    """Return the seconds that onnxruntime takes for a model alone, and with a provider.

    Parameters
    ----------
    inputs
        What the model is run on, by name; the others are random numbers, ones for integers, and true.
    model, provider, shapes, dims, batch
        As those of :func:`tvmconv.onnxruntime.session`, and so are the errors.

    Raises
    ------
    InputError
        If the model does not run on these inputs.
    """
    import onnxruntime as ort

    def options() -> Any:
        made = ort.SessionOptions()
        made.log_severity_level = 4
        return made

    try:
        content = with_shapes(model, shapes, dims, batch)
        alone = ort.InferenceSession(content, options(), providers=["CPUExecutionProvider"])
        with_it = session(model, provider, shapes=shapes, dims=dims, batch=batch, options=options())
        generator, given = np.random.default_rng(0), inputs or {}
        feeds = {each.name: _array(each, given.get(each.name), generator) for each in alone.get_inputs()}
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(_TURNS):
            for each, found in zip((alone, with_it), times, strict=True):
                time.sleep(_PAUSE_SECONDS)
                found.append(_time(each, feeds))
    except TvmconvError:
        raise
    except Exception as error:  # of onnxruntime's own classes
        raise InputError(f"onnxruntime cannot run it: {last_line(error)}") from error
    return median(times[0]), median(times[1])


def _array(value: Any, given: np.ndarray | None, generator: np.random.Generator) -> np.ndarray:
    shape = [size if isinstance(size, int) else 1 for size in value.shape]
    kind = value.type.removeprefix("tensor(").removesuffix(")")
    dtype = {"float": "float32", "double": "float64"}.get(kind, kind)
    if given is not None:
        return np.broadcast_to(given, shape).astype(dtype)
    return generator.standard_normal(shape).astype(dtype) if "float" in dtype else np.ones(shape, dtype)


def _time(runs: Any, feeds: Mapping[str, np.ndarray]) -> float:
    """Return the median seconds of a run."""
    times: list[float] = []
    runs.run(None, feeds)
    end = time.perf_counter() + _TURN_SECONDS
    while time.perf_counter() < end or len(times) < 3:
        start = time.perf_counter()
        runs.run(None, feeds)
        times.append(time.perf_counter() - start)
    return median(times)
