"""Fold numbers added to a convolution's input into its bias.

Without padding, ``conv(x + shift) = conv(x) + conv(shift)``, and ``conv(shift)`` is one number for each output channel. With padding it
differs at the border, where zeros replace the shifted data.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax

from ..ir.free import same_shape
from ..ir.graph import Graph, by_channel
from ..ir.problem_of import NotCoveredError, is_convolution, problem_of
from .fuse_epilogue import EpilogueChain

Vector = npt.NDArray[np.float64]


def take_shift(chain: EpilogueChain, graph: Graph) -> None:
    """Fold constants added to a chain's data into its bias, if only convolutions without padding read the sum."""
    total = graph.call(chain.data, "relax.add") if isinstance(chain.data, relax.Var) else None
    if (
        total is None
        or chain.problem.is_quantized
        or not all(_unpad(reader, chain.data, graph) for reader in graph.readers(chain.data))
    ):
        return
    for data, added in (total.args, reversed(total.args)):
        shift = by_channel(graph.array(added), chain.problem, chain.problem.in_channels)
        if shift is not None and isinstance(data, relax.Var) and same_shape(data.ty, total.ty):
            chain.data, chain.problem = data, chain.problem.with_(bias=True)
            chain.vectors["bias"] = chain.vectors.get("bias", 0) + _sums(shift, chain.filter, chain.problem.groups)
            return


def _sums(shift: Vector, filter_: Vector, groups: int) -> Vector:
    """Return the convolution of a shift without padding, one number for each output channel; the filter's axes are OIX."""
    taps = filter_.reshape(groups, filter_.shape[0] // groups, filter_.shape[1], -1)
    made: Vector = np.einsum("goik,gi->go", taps, shift.reshape(groups, -1)).reshape(-1)
    return made


def _unpad(reader: relax.Var | None, data: Any, graph: Graph) -> bool:
    call = graph.call(reader)
    if call is None or not is_convolution(call) or not call.args[0].same_as(data) or graph.array(call.args[1]) is None:
        return False
    try:
        problem = problem_of(call)
    except NotCoveredError:
        return False
    return problem.op == "convolution" and not any((*problem.pads_begin, *problem.pads_end))
