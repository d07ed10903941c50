"""Which problems are tuned and compared on a GPU, and which mean each counts to."""

from __future__ import annotations

from itertools import zip_longest

from tvmconv.frontends import read_source
from tvmconv.problem import Problem


def group_of(problem: Problem) -> str:
    """Return which mean a problem counts to: its kind, type and batch."""
    kind = "backprop" if problem.op != "convolution" else "grouped" if problem.groups > 1 else "convolution"
    return f"{kind} {problem.dtype} batch {problem.batch}"


def problems_of(sources: list[str], batches: list[int], dtypes: list[str]) -> list[Problem]:
    """Return the sources' problems at these batches and types, taking turns, so that a part of them is like the whole."""
    lists = [
        [problem.with_(batch=batch, dtype=dtype) for problem in read_source(source) if not problem.is_empty]
        for dtype in dtypes
        for batch in batches
        for source in sources
    ]
    mixed = (problem for turn in zip_longest(*lists) for problem in turn if problem is not None)
    return list(dict.fromkeys(mixed))
