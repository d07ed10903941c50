"""Our network in parts: what its steps take that are our kernels, and what all others take."""

from __future__ import annotations

from typing import Any

import tvmconv.torch

KERNELS, OTHERS = "kernels", "others"


def seconds_of(fast: Any, part: str, seconds: float) -> list[float]:
    """Return what the steps of a part take in a call of our networks, timed within calls for about `seconds`: one sample."""
    networks = tvmconv.torch.networks(fast)
    found = [
        step.seconds
        for network in networks
        for step in network.operators(network.random_inputs(), seconds / len(networks))
        if step.ours == (part == KERNELS)
    ]
    return [sum(found)]
