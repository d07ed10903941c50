"""`Option`: an algorithm that may compute a problem; those of a network's layers are kept in the user's cache."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import astuple, dataclass

from ...algorithms.table import applicable
from ...problem import Problem
from ...signature import format_signature
from ...support.cache import open_cache
from ...targets.target import Target
from ..keys import digest


@dataclass(frozen=True)
class Option:
    """An algorithm that may compute a problem, the cycles that it takes, and the bytes of its filter."""

    algorithm: str
    cycles: float
    size: int
    is_default: bool


def options_of(problem: Problem, target: Target, math: str) -> list[Option]:
    """Return the options to compute a problem, by their time with filters that a cache keeps."""
    return [
        Option(each.name, each.cycles(problem, target), each.filter_bytes(problem, target), each.is_default)
        for each in applicable(problem, target, math)
    ]


def options_of_network(problems: Iterable[Problem], target: Target, math: str) -> dict[Problem, list[Option]]:
    """Return the options of a network's distinct problems, estimated once on this machine."""
    distinct = list(dict.fromkeys(problems))
    known = open_cache()
    key = digest(target, options=[format_signature(each) for each in distinct], math=math) if known else ""
    content = known.read(key) if known else None
    if content is not None:
        listed = [[Option(*each) for each in options] for options in json.loads(content)]
        return dict(zip(distinct, listed, strict=True))
    found = {each: options_of(each, target, math) for each in distinct}
    if known:
        known.write(key, json.dumps([list(map(astuple, options)) for options in found.values()]).encode())
    return found
