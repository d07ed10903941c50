"""What makes a model the fastest: onnxruntime alone, and with what a provider may claim of it, in turns."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from statistics import median
from typing import Any

import numpy as np

from ..accuracy import NETWORK_ERROR, network_error
from ..errors import InputError, TvmconvError, last_line
from ..exporting.provider_sources import CLAIMS, NETWORK
from ..measuring.timing import time_call
from .sessions import loaded, register, session, with_shapes

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
    """A model's seconds by what a provider claims of it, of `CLAIMS`; its graphs, each its hash and its identity.

    `refused` says why the provider's network is not among them; ``""``: it is, or there is none.
    """

    seconds: Mapping[str, float]
    graphs: tuple[tuple[int, int], ...]
    refused: str = ""

    @property
    def fastest(self) -> str:
        """What is to be claimed: nothing, unless something is faster by `LEAST_GAIN`."""
        return self._fastest(self.seconds)

    @property
    def fastest_part(self) -> str:
        """What is to be claimed if the network is not."""
        return self._fastest({claims: each for claims, each in self.seconds.items() if claims != NETWORK})

    def _fastest(self, seconds: Mapping[str, float]) -> str:
        best = min(seconds, key=lambda claims: seconds[claims])
        return best if seconds["nothing"] >= LEAST_GAIN * seconds[best] else "nothing"


def graph_of(
    model: str | os.PathLike[str],
    provider: str | os.PathLike[str],
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int] | None = None,
    batch: int | None = None,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
) -> int:
    """Return the identity of the graph that onnxruntime makes of a model, for which a provider has networks.

    Parameters
    ----------
    provider
        A library that computes nothing (`tvmconv.exporting.provider_library.export_provider`); others tell no identities.
    inputs, outputs
        Tensors: what computes the outputs of the inputs, and of the model's own, is the graph; none: all of the model.
    model, shapes, dims, batch
        As those of :func:`tvmconv.onnxruntime.session`, and so are the errors.

    Raises
    ------
    InputError
        If onnxruntime does not read the model, or it has no identity.
    """
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    name = register(provider)
    _graphs(provider)
    devices = [each for each in ort.get_ep_devices() if each.ep_name == name][:1]
    ends = {"inputs": "\n".join(inputs), "outputs": "\n".join(outputs)} if outputs else {}
    options.add_provider_for_devices(devices, {"claims": "nothing", **ends})
    try:
        ort.InferenceSession(with_shapes(model, shapes, dims, batch), options)
    except TvmconvError:
        raise
    except Exception as error:  # of onnxruntime's own classes
        raise InputError(f"onnxruntime cannot read it: {last_line(error)}") from error
    # It asks again once it has put functions' own operators in the place of such as HardSwish.
    found = next((identity for _, identity in _graphs(provider) if identity), None)
    if found is None:
        raise InputError(
            "onnxruntime's graph of it has graphs within nodes, or tensors whose shapes are not known before it runs"
            + ("" if not outputs else f", or it does not compute {', '.join(outputs)}")
        )
    return found


def race(
    model: str | os.PathLike[str],
    provider: str | os.PathLike[str],
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int] | None = None,
    batch: int | None = None,
    inputs: Mapping[str, np.ndarray] | None = None,
    claims: Sequence[str] = CLAIMS,
    networks: Sequence[int] | None = None,
) -> Race:
    """Return the seconds that onnxruntime takes for a model by what a provider claims of it.

    Parameters
    ----------
    inputs
        What the model is run on, by name; the others are random numbers, ones for integers, and true.
    claims
        What is tried; ``"nothing"`` is onnxruntime alone. A network must give onnxruntime's answers, as far as kernels do.
    model, provider, shapes, dims, batch, networks
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

    fixed_shapes: Any = {"shapes": shapes, "dims": dims, "batch": batch}
    given = {**fixed_shapes, "networks": networks}
    refused = ""
    register(provider)
    try:
        sessions = {"nothing": ort.InferenceSession(with_shapes(model, **fixed_shapes), options())}
        _graphs(provider)
        for each in claims:
            if each not in ("nothing", NETWORK):
                sessions[each] = session(model, provider, options=options(), claims=each, **given)
        generator, fixed = np.random.default_rng(0), inputs or {}
        feeds = {each.name: _array(each, fixed.get(each.name), generator) for each in sessions["nothing"].get_inputs()}
        if NETWORK in claims:
            with_network = partial(session, model, provider, options=options(), claims=NETWORK, **given)
            refused = _add_network(sessions, with_network, feeds)
        graphs = _graphs(provider)
        times: dict[str, list[float]] = {each: [] for each in sessions}
        for _ in range(_TURNS):
            for name, each in sessions.items():
                time.sleep(_PAUSE_SECONDS)
                times[name].append(time_call(partial(each.run, None, feeds), _TURN_SECONDS).median)
    except TvmconvError:
        raise
    except Exception as error:  # of onnxruntime's own classes
        raise InputError(f"onnxruntime cannot run it: {last_line(error)}") from error
    return Race({name: median(found) for name, found in times.items()}, graphs, refused)


def race_parts(
    model: str | os.PathLike[str], provider: str | os.PathLike[str], found: Race, **given: Any
) -> tuple[Race, dict[int, Race]]:
    """Return the race with those of a model's networks alone that make it faster each by itself, and their own races.

    Parameters
    ----------
    found
        The race with all networks; it is returned if there are not several, all or none of them help.
    model, provider, given
        As those of :func:`race`, and so are the errors.
    """
    parts = list(dict.fromkeys(identity for _, identity in found.graphs if identity))
    if NETWORK not in given.get("claims", CLAIMS) or len(parts) < 2:
        return found, {}
    alone = {
        each: race(model, provider, **{**given, "claims": ("nothing", NETWORK), "networks": [each]}) for each in parts
    }
    kept = [part for part, each in alone.items() if each.seconds.get(NETWORK, inf) < each.seconds["nothing"]]
    if 0 < len(kept) < len(parts):
        found = race(model, provider, **{**given, "networks": kept})
    return found, alone


def _add_network(sessions: dict[str, Any], make: Callable[[], Any], feeds: Mapping[str, np.ndarray]) -> str:
    """Add the session that runs the provider's network; return why not."""
    try:
        made = make()
    except Exception as error:  # noqa: BLE001 (of onnxruntime's own classes)
        return last_line(error)
    answers, expected = made.run(None, feeds), sessions["nothing"].run(None, feeds)
    known = (all(isinstance(size, int) for size in each.shape) for each in made.get_outputs())
    worst = max((_error(*each) for each in zip(answers, expected, known, strict=True)), default=0.0)
    if worst > NETWORK_ERROR:
        return f"its answers are off by {worst:.2g}"
    sessions[NETWORK] = made
    return ""


def _error(got: Any, expected: Any, is_known: bool) -> float:
    """Return how far an output is from onnxruntime's; 0 of one that a rounding may make another: whose shape numbers decide."""
    if not isinstance(expected, np.ndarray):  # a sequence or a map
        return 0.0
    if expected.dtype.kind == "O":
        return float(np.mean(got != expected)) if expected.size else 0.0
    decided = not is_known and (got.shape != expected.shape or expected.dtype.kind in "biu")
    return 0.0 if decided else network_error(got, expected)


def _graphs(provider: str | os.PathLike[str]) -> tuple[tuple[int, int], ...]:
    """Return hash and identity of the graphs that the provider was asked for since it was asked for them last."""
    found = ((ctypes.c_uint64 * 2) * _MOST_GRAPHS)()
    with loaded(provider) as opened:
        count = opened.tvmconv_provider_graphs(found, _MOST_GRAPHS)
    return tuple((each[0], each[1]) for each in found[:count])


def _array(value: Any, given: np.ndarray | None, generator: np.random.Generator) -> np.ndarray:
    shape = [size if isinstance(size, int) else 1 for size in value.shape]
    kind = value.type.removeprefix("tensor(").removesuffix(")")
    dtype = {"float": "float32", "double": "float64", "string": "O"}.get(kind, kind)
    if given is not None:
        return np.broadcast_to(given, shape).astype(dtype)
    if dtype == "O":
        return np.full(shape, "", dtype)
    return generator.standard_normal(shape).astype(dtype) if "float" in dtype else np.ones(shape, dtype)
