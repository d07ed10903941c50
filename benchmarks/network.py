"""What one contender's process does: make a network ready, check its answer, time it; see `benchmarks.networks`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.utils import _pytree as pytree

import tvmconv.torch
from tvmconv.accuracy import relative_error
from tvmconv.errors import VerificationError

from .machine import CLOCKS
from .models.weights import settle
from .network_contenders import OURS, prepare
from .network_parts import seconds_of
from .network_runs import Samples
from .peers import UnsupportedError
from .rest import take_turn

# Of the relative L2 error: in f32, what Winograd adds up to over a network, and no lesser type stays below.
ALLOWED_ERROR = {"f32": 1e-4, "bf16": 5e-2}


@dataclass(frozen=True)
class Task:
    """Time `contender` on a network for about `seconds`.

    Attributes
    ----------
    network, dtype
        A module of `benchmarks.models`, and the type to compute in.
    contender
        One of `network_contenders`.
    folder
        Where :func:`write` put the network, its input and the expected answer.
    bundle
        Has our kernels.
    clock
        One of `CLOCKS`, by which it is timed.
    part
        `KERNELS` or `OTHERS`: that part of ours alone.
    """

    network: str
    contender: str
    dtype: str
    folder: str
    bundle: str
    seconds: float
    clock: str
    part: str = ""

    def __str__(self) -> str:
        return f"{self.contender} on {self.network} in {self.dtype}"


@dataclass(frozen=True)
class Answer(Samples):
    """Samples, and our layers that no kernel computes."""

    by_torch: tuple[str, ...] = ()


def load(network: str, batch: int = 1) -> tuple[nn.Module, Any]:
    """Return a network for inference, and an input: whatever the batch, the same weights."""
    module = import_module(f"{__package__}.models.{network}")
    torch.manual_seed(0)
    model = settle(module.model(), module.example())
    return model, module.example(batch)


def write(network: str, batch: int, folder: Path) -> None:
    """Write a network, an input, and PyTorch's answer in f32 into a folder."""
    model, data = load(network, batch)
    with torch.inference_mode():
        np.save(folder / "expected.npy", _flat(model(data)))
    torch.save((model, data), folder / "network.pt")


def measure(task: Task) -> Answer:
    """Time what `task` says.

    Raises
    ------
    VerificationError
        If our answer is not PyTorch's. A peer's wrong answer only rules it out.
    """
    with torch.inference_mode():
        try:
            call, called, by_torch = _ready(task.network, task.contender, task.dtype, task.folder, task.bundle)
        except UnsupportedError as error:
            return Answer(unsupported=str(error))
        if task.part:
            return Answer(seconds_of(called, task.part, task.seconds), by_torch=by_torch)
        return Answer(take_turn(call, task.seconds, CLOCKS[task.clock]), by_torch=by_torch)


@lru_cache(maxsize=1)
def _ready(
    network: str, contender: str, dtype: str, folder: str, bundle: str
) -> tuple[Callable[[], Any], Any, tuple[str, ...]]:
    """Return the call, whose answer is right, the network that it calls, and of ours the operators that PyTorch computes."""
    model, data = torch.load(Path(folder) / "network.pt", weights_only=False)
    call, called = prepare(contender, model, data, dtype, bundle)
    error, allowed = relative_error(_flat(call()), np.load(Path(folder) / "expected.npy")), ALLOWED_ERROR[dtype]
    if not error <= allowed:
        wrong = f"the relative L2 error is {error:.2g}, allowed is {allowed:.2g}"
        if contender == OURS:
            raise VerificationError(f"{network} is computed wrongly: {wrong}")
        raise UnsupportedError(f"wrong answer: {wrong}")
    if contender != OURS:
        return call, called, ()
    report = tvmconv.torch.report(called)
    by_torch = [f"{row.layer}: {row.computes}: {row.why}" for row in report if row.why]
    by_torch += [f"{row.network}: {row.why}" for row in report.kernels if row.why]
    return call, called, (*by_torch, *(f"{path}: {why}" for path, why in report.refused.items()))


def _flat(answer: Any) -> npt.NDArray[Any]:
    """Return all outputs of a network in one array."""
    leaves = pytree.tree_leaves(answer)
    arrays = [leaf.float().numpy() if isinstance(leaf, torch.Tensor) else np.asarray(leaf) for leaf in leaves]
    return np.concatenate([array.astype(np.float32).ravel() for array in arrays])
