"""Race a model in onnxruntime alone against each claim of a provider, in turns."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from ..runtime.networks.tensors import put_in_range
from .sessions import open_library, open_model, register, session

_TURNS = 5
_TURN_SECONDS = 0.12
# Time for which the other session's threads keep spinning after a run.
_PAUSE_SECONDS = 0.02
# Smaller gains are within the variation of timings.
LEAST_GAIN = 1.05
# Most graphs that a provider records (provider.c).
_MOST_GRAPHS = 256


@dataclass(frozen=True)
class RaceResult:
    """A model's seconds by the provider's claim, one of `CLAIMS`; and its graphs, each as hash and identity.

    `refused` is the reason why the provider's network was not raced; ``""``: it was, or there is none. `unchecked`: it was, but no output
    of the model could be compared with onnxruntime's.
    """

    seconds: Mapping[str, float]
    graphs: tuple[tuple[int, int], ...]
    refused: str = ""
    unchecked: bool = False

    @property
    def fastest(self) -> str:
        """Fastest claim; ``"nothing"`` unless another one is faster by `LEAST_GAIN`."""
        return self._fastest(self.seconds)

    @property
    def fastest_without_network(self) -> str:
        """Fastest claim without the network."""
        return self._fastest({claims: each for claims, each in self.seconds.items() if claims != NETWORK})

    def _fastest(self, seconds: Mapping[str, float]) -> str:
        best = min(seconds, key=lambda claims: seconds[claims])
        return best if seconds["nothing"] >= LEAST_GAIN * seconds[best] else "nothing"


def graph_of(
    model: str | os.PathLike[str],
    provider: str | os.PathLike[str],
    *,
    shapes: Mapping[str, Sequence[int | None]] | None = None,
    dims: Mapping[str, int] | None = None,
    batch: int | None = None,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
) -> int:
    """Return the identity of a model's graph in onnxruntime, by which a provider finds its networks.

    Parameters
    ----------
    provider
        A library that computes nothing (`tvmconv.exporting.provider_library.export_provider`); others report no identities.
    inputs, outputs
        Tensors that delimit the graph, which computes the outputs from these inputs and the model's; none: the whole model.
    model, shapes, dims, batch
        As for :func:`tvmconv.onnxruntime.session`, which has the same errors.

    Raises
    ------
    InputError
        If onnxruntime cannot read the model, or its graph has no identity.
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
        open_model(model, options, shapes, dims, batch)
    except TvmconvError:
        raise
    except Exception as error:  # of onnxruntime's own classes
        raise InputError(f"onnxruntime cannot read it: {last_line(error)}") from error
    # onnxruntime offers the graph again after expanding functions such as HardSwish.
    found = next((identity for _, identity in _graphs(provider) if identity), None)
    if found is None:
        raise InputError(
            "onnxruntime's graph of it has subgraphs, or tensors of unsupported types"
            + ("" if not outputs else f", or it does not compute {', '.join(outputs)}")
        )
    return found


def race(
    model: str | os.PathLike[str],
    provider: str | os.PathLike[str],
    *,
    shapes: Mapping[str, Sequence[int | None]] | None = None,
    dims: Mapping[str, int] | None = None,
    batch: int | None = None,
    inputs: Mapping[str, np.ndarray] | None = None,
    sizes: Mapping[str, Sequence[int]] | None = None,
    claims: Sequence[str] = CLAIMS,
    networks: Sequence[int] | None = None,
) -> RaceResult:
    """Return onnxruntime's seconds for a model by the provider's claim.

    Parameters
    ----------
    inputs
        Arrays by input names; others get random numbers, integers ones (zeros where ones are indices out of range), booleans true.
    sizes
        Shapes of inputs with free dimensions, for their arrays; by default free dimensions are 1.
    claims
        Claims to race; ``"nothing"`` is onnxruntime alone. A network's answers must agree with onnxruntime's within kernels' tolerance.
    model, shapes, dims, batch, networks
        As for :func:`tvmconv.onnxruntime.session`, which has the same errors.
    provider
        The library that ``tvmconv export-onnxruntime`` wrote.

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
    refused, unchecked = "", False
    register(provider)
    try:
        sessions = {"nothing": open_model(model, options(), **fixed_shapes)}
        _graphs(provider)
        for each in claims:
            if each not in ("nothing", NETWORK):
                sessions[each] = session(model, provider, options=options(), claims=each, **given)
        generator, fixed = np.random.default_rng(0), inputs or {}
        feeds = {
            each.name: _array(each, (sizes or {}).get(each.name), fixed.get(each.name), generator)
            for each in sessions["nothing"].get_inputs()
        }
        feeds = _put_in_range(sessions["nothing"], feeds, fixed)
        if NETWORK in claims:
            with_network = partial(session, model, provider, options=options(), claims=NETWORK, **given)
            plain = options()
            plain.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
            without = partial(open_model, model, plain, **fixed_shapes)
            refused, unchecked = _add_network(sessions, with_network, without, feeds)
        graphs = _graphs(provider)
        seconds = _time_in_turns(sessions, feeds)
    except TvmconvError:
        raise
    except Exception as error:  # of onnxruntime's own classes
        raise InputError(f"onnxruntime cannot run it: {last_line(error)}") from error
    return RaceResult(seconds, graphs, refused, unchecked)


def _time_in_turns(sessions: Mapping[str, Any], feeds: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Return the median seconds of each session's calls."""
    times: dict[str, list[float]] = {each: [] for each in sessions}
    for _ in range(_TURNS):
        for name, each in sessions.items():
            time.sleep(_PAUSE_SECONDS)
            times[name].append(time_call(partial(each.run, None, feeds), _TURN_SECONDS).median)
    return {name: median(found) for name, found in times.items()}


def race_parts(
    model: str | os.PathLike[str], provider: str | os.PathLike[str], found: RaceResult, **given: Any
) -> tuple[RaceResult, dict[int, RaceResult]]:
    """Return the race with those networks of a model's parts that do not slow it down, and the race of each alone.

    A part is dropped if the model with it alone takes at least `LEAST_GAIN` times as long as with nothing, or its answers are wrong; smaller
    losses are within the variation of timings.

    Parameters
    ----------
    found
        The race with all networks, returned if there are not several, or all or none of them stay.
    model, provider, given
        As for :func:`race`, which has the same errors.
    """
    identities = list(dict.fromkeys(identity for _, identity in found.graphs if identity))
    if NETWORK not in given.get("claims", CLAIMS) or len(identities) < 2:
        return found, {}
    alone = {
        each: race(model, provider, **{**given, "claims": ("nothing", NETWORK), "networks": [each]})
        for each in identities
    }
    kept = [
        identity
        for identity, each in alone.items()
        if each.seconds.get(NETWORK, inf) < LEAST_GAIN * each.seconds["nothing"]
    ]
    if 0 < len(kept) < len(identities):
        found = race(model, provider, **{**given, "networks": kept})
    return found, alone


def _add_network(
    sessions: dict[str, Any], make: Callable[[], Any], make_plain: Callable[[], Any], feeds: Mapping[str, np.ndarray]
) -> tuple[str, bool]:
    """Add the session of the provider's network; return why it was refused, and whether none of its outputs could be compared.

    onnxruntime's optimizations change the answers of quantized models: a network may be as far from unoptimized answers as optimized ones.
    """
    try:
        made = make()
    except Exception as error:  # noqa: BLE001 (of onnxruntime's own classes)
        return last_line(error), False
    answers, expected = made.run(None, feeds), sessions["nothing"].run(None, feeds)
    known = [
        each.type.startswith("tensor(") and all(isinstance(size, int) for size in each.shape)
        for each in made.get_outputs()
    ]
    worst = _worst(zip(answers, expected, known, strict=True))
    if worst is not None and worst > NETWORK_ERROR:
        plain = make_plain().run(None, feeds)
        off, own = (_worst(zip(each, plain, known, strict=True)) or 0.0 for each in (answers, expected))
        if off > max(own, NETWORK_ERROR):
            return f"its answers are off by {worst:.2g}", False
    sessions[NETWORK] = made
    return "", worst is None


def _worst(answers: Iterable[tuple[Any, Any, bool]]) -> float | None:
    """Return the largest error of outputs compared with onnxruntime's; None: none of them could be compared."""
    return max((error for each in answers if (error := _error(*each)) is not None), default=None)


def _error(got: Any, expected: Any, is_known: bool) -> float | None:
    """Return an output's error compared with onnxruntime's, the largest one in a sequence or map; None: it cannot be compared.

    That holds where shapes, lengths or keys depend on values and differ, and for integers in such outputs: rounding may change them.
    """
    if isinstance(expected, Mapping):
        if got.keys() != expected.keys():
            return None
        got, expected = list(got.values()), [expected[key] for key in got]
    if isinstance(expected, list):  # a sequence, whose type has no length
        if len(got) != len(expected):
            return None
        return _worst((*each, is_known) for each in zip(got, expected, strict=True))
    answer, right = np.asarray(got), np.asarray(expected)
    if answer.shape != right.shape:
        return inf if is_known else None
    if not right.size or (not is_known and right.dtype.kind in "biu"):
        return None
    return float(np.mean(answer != right)) if right.dtype.kind in "OU" else network_error(answer, right)


def _graphs(provider: str | os.PathLike[str]) -> tuple[tuple[int, int], ...]:
    """Return hash and identity of each graph offered to the provider since the last call."""
    found = ((ctypes.c_uint64 * 2) * _MOST_GRAPHS)()
    with open_library(provider) as opened:
        count = opened.tvmconv_provider_graphs(found, _MOST_GRAPHS)
    return tuple((each[0], each[1]) for each in found[:count])


def _put_in_range(alone: Any, feeds: dict[str, np.ndarray], given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return inputs with zeros for integers that a caller does not specify, where the model's session refuses ones as indices."""
    drawn = {name: each for name, each in feeds.items() if name not in given}
    # onnxruntime's errors have no common class; the race raises the first.
    return {**feeds, **put_in_range(drawn, lambda arrays: alone.run(None, {**feeds, **arrays}), Exception)}


def _array(
    value: Any, size: Sequence[int] | None, given: np.ndarray | None, generator: np.random.Generator
) -> np.ndarray:
    shape = size or [size if isinstance(size, int) else 1 for size in value.shape]
    kind = value.type.removeprefix("tensor(").removesuffix(")")
    dtype = {"float": "float32", "double": "float64", "string": "O"}.get(kind, kind)
    if given is not None:
        with np.errstate(invalid="ignore"):
            array = np.broadcast_to(given, shape).astype(dtype)
        if array.dtype.kind in "biu" and (array != given).any():
            raise InputError(f"the input {value.name} is {kind}, which cannot hold all of the given numbers")
        return array
    if dtype == "O":
        return np.full(shape, "", dtype)
    return generator.standard_normal(shape).astype(dtype) if "float" in dtype else np.ones(shape, dtype)
