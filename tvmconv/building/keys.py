"""Digests of everything that decides a build's outcome: keys of the user's cache."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

from ..support.origin import sources, versions
from ..targets.target import Target

# Raised when files of the cache are written in another way.
_FORMAT = 2


def digest(target: Target, **facts: Any) -> str:
    """Return the digest of facts about a build for a target, and of this package's and TVM's versions."""
    every = {"format": _FORMAT, "package": sources(), "versions": versions(), **_facts_of(target), **_plain(facts)}
    return hashlib.sha256(json.dumps(every, sort_keys=True).encode()).hexdigest()


@cache
def _facts_of(target: Target) -> dict[str, Any]:
    return {"target": repr(target), "costs": _plain(getattr(target, "costs", None))}


def _plain(value: Any) -> Any:
    """Return a value as JSON has it, the same in each process."""
    if is_dataclass(value):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(map(str, value))
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
