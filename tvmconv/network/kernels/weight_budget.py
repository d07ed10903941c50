"""Limit the memory of a network's filters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import tvm

from ...building.decision.rank import Room
from ..ir.constants import DistinctArrays, constant_sizes
from .fuse_epilogue import EpilogueChain

# Largest ratio of a network's weights to the model's, and the fraction of the kernels' time that may be lost for it.
MOST_TIMES, MOST_LOSS = 1.3, 0.02


def room_for(chains: Iterable[EpilogueChain], mod: tvm.IRModule, given: int) -> Room:
    """Return the room for the filters of a module's `chains`; `given` are the bytes of the model's constants.

    Bytes of the module's other constants are subtracted. Chains with equal problems and filters share one filter.
    """
    chains, constants, filters = list(chains), DistinctArrays(), DistinctArrays()
    of_chains = {constants.number(chain.constant) for chain in chains}
    others = sum(size for number, size in constant_sizes(mod, constants).items() if number not in of_chains)
    distinct = dict.fromkeys((chain.problem, filters.number(chain.filter)) for chain in chains)
    return Room(MOST_TIMES * given - others, MOST_LOSS, Counter(problem for problem, _ in distinct))
