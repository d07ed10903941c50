"""PyTorch's LSTM, GRU and RNN as one operator each, which torch.export would otherwise unroll step by step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import is_fake

# PyTorch's names of their functions.
LAYERS = ("lstm", "gru", "rnn_tanh", "rnn_relu")


@torch.library.custom_op("tvmconv::recurrent", mutates_args=())  # type: ignore[untyped-decorator]
def _recurrent(
    input: torch.Tensor,
    hx: list[torch.Tensor],
    params: list[torch.Tensor],
    layer: str,
    has_biases: bool,
    num_layers: int,
    bidirectional: bool,
) -> list[torch.Tensor]:
    """Return all steps, along the first axis, and the last states and cells, like PyTorch."""
    states = hx if layer == "lstm" else hx[0]
    compute = getattr(torch, layer)
    return [*compute(input, states, params, has_biases, num_layers, 0.0, False, bidirectional, False)]


@_recurrent.register_fake  # type: ignore[untyped-decorator]
def _like(input: Any, hx: Any, params: Any, layer: str, has_biases: bool, num_layers: int, bidirectional: bool) -> Any:
    width = hx[0].shape[2] * (1 + bidirectional)
    return [input.new_empty((*input.shape[:2], width)), *(each.new_empty(each.shape) for each in hx)]


@contextmanager
def whole_layers() -> Iterator[None]:
    """Make PyTorch's recurrent modules call one operator each, within the context."""
    own = {name: vars(torch._VF).get(name) for name in LAYERS}
    for name in LAYERS:
        setattr(torch._VF, name, _whole(name))
    try:
        yield
    finally:
        for name, before in own.items():
            if before is None:
                delattr(torch._VF, name)
            else:
                setattr(torch._VF, name, before)


def _whole(name: str) -> Any:
    """Return PyTorch's function of a layer, with supported calls as one operator."""
    compute = getattr(torch, name)

    def computed(*given: Any) -> Any:
        # Calls of other threads, and with sequence lengths as data, stay PyTorch's.
        if not is_fake(given[0]) or not isinstance(given[2], list):
            return compute(*given)
        data, states, params, has_biases, layers, dropout, train, bidirectional, batch_first = given
        steps = data.shape[1 if batch_first else 0]
        if (data.dtype == torch.float64 and isinstance(steps, int)) or (train and dropout):
            return compute(*given)
        rows = data.transpose(0, 1) if batch_first else data
        states = [*states] if name == "lstm" else [states]
        steps, *last = _recurrent(rows, states, params, name, has_biases, layers, bidirectional)
        return (steps.transpose(0, 1) if batch_first else steps, *last)

    return computed
