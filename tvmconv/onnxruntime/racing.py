"""What makes a model the fastest: onnxruntime alone, and with what a provider may claim of it, in turns."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from ..errors import InputError, TvmconvError, last_line
from ..exporting.provider_sources import CLAIMS
from ..measuring.timing import time_call
from .sessions import session, with_shapes

_TURNS = 5
_TURN_SECONDS = 0.12
# Threads of the other session look for work as long after a run.
_PAUSE_SECONDS = 0.02
# Less is within what timings vary by.
LEAST_GAIN = 1.05
# What a provider notes of graphs at most (provider.c).
_MOST_GRAPHS = 256


@dataclass(frozen=True)
class Race:
    """A model's seconds by what a provider claims of it, of `CLAIMS`, and the hashes of its graphs."""

    seconds: Mapping[str, float]
    graphs: tuple[int, ...]

    @property
    def fastest(self) -> str:
        """What is to be claimed: nothing, unless something is faster by `LEAST_GAIN`."""
        best = min(self.seconds, key=lambda claims: self.seconds[claims])
        return best if self.seconds["nothing"] >= LEAST_GAIN * self.seconds[best] else "nothing"


def race(
    model: str | os.PathLike[str],
    provider: str | os.PathLike[str],
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int] | None = None,
    batch: int | None = None,
    inputs: Mapping[str, np.ndarray] | None = None,
    claims: Sequence[str] = CLAIMS,
) -> Race:
    """Return the seconds that onnxruntime takes for a model by what a provider claims of it.

    Parameters
    ----------
    inputs
        What the model is run on, by name; the others are random numbers, ones for integers, and true.
    claims
        What is tried; ``"nothing"`` is onnxruntime alone.
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
        sessions = {"nothing": ort.InferenceSession(with_shapes(model, shapes, dims, batch), options())}
        _graphs(provider)
        for each in claims:
            if each != "nothing":
                given: Any = {"shapes": shapes, "dims": dims, "batch": batch}
                sessions[each] = session(model, provider, options=options(), claims=each, **given)
        graphs = _graphs(provider)
        generator, fixed = np.random.default_rng(0), inputs or {}
        feeds = {each.name: _array(each, fixed.get(each.name), generator) for each in sessions["nothing"].get_inputs()}
        times: dict[str, list[float]] = {each: [] for each in sessions}
        for _ in range(_TURNS):
            for name, each in sessions.items():
                time.sleep(_PAUSE_SECONDS)
                times[name].append(time_call(partial(each.run, None, feeds), _TURN_SECONDS).median)
    except TvmconvError:
        raise
    except Exception as error:  # of onnxruntime's own classes
        raise InputError(f"onnxruntime cannot run it: {last_line(error)}") from error
    return Race({name: median(found) for name, found in times.items()}, graphs)


def _graphs(provider: str | os.PathLike[str]) -> tuple[int, ...]:
    """Return the hashes of the graphs that the provider was asked for since it was asked for them last."""
    found = (ctypes.c_uint64 * _MOST_GRAPHS)()
    return tuple(found[: ctypes.CDLL(os.fspath(provider)).tvmconv_provider_graphs(found, _MOST_GRAPHS)])


def _array(value: Any, given: np.ndarray | None, generator: np.random.Generator) -> np.ndarray:
    shape = [size if isinstance(size, int) else 1 for size in value.shape]
    kind = value.type.removeprefix("tensor(").removesuffix(")")
    dtype = {"float": "float32", "double": "float64"}.get(kind, kind)
    if given is not None:
        return np.broadcast_to(given, shape).astype(dtype)
    return generator.standard_normal(shape).astype(dtype) if "float" in dtype else np.ones(shape, dtype)
