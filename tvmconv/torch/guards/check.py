"""`Guards`: detect changes of the parts of a model, and of objects it refers to, that a trace read.

Dynamo has such guards of its own traces, but takes seconds and 75 MiB to import, and traces a model in each process, which models from
a folder need not. These come from the code that one call of the model runs (`reads`), and are compared in C (`snapshot`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from .facts import Facts, Moving, read_facts
from .reads import Reads
from .snapshot import Snapshot


class Guards:
    """State of a model for which networks were compiled."""

    def __init__(self, module: nn.Module, reads: Reads, own: Callable[[Any], Any]) -> None:
        self._module, self._reads, self._own = module, reads, own
        self._first, snapshot = read_facts(module, reads, own)
        self._now: tuple[Snapshot, str] | None = (snapshot, "")

    def changed(self) -> str:
        """Return the first difference from the state at tracing, or nothing."""
        now = self._now
        if now is not None and now[0].is_same():
            return now[1]
        try:
            found, snapshot = read_facts(self._module, self._reads, self._own)
        except RuntimeError:  # another thread writes to a dict
            return "it is changed at this moment"
        why = _difference(self._first, found)
        self._now = snapshot, why
        return why

    @property
    def tensors(self) -> list[Any]:
        """Tensors that code may read."""
        return self._now[0].tensors if self._now is not None else []

    def __getstate__(self) -> dict[str, Any]:
        """A copy checks its own state again."""
        return {**self.__dict__, "_now": None}


def _difference(before: Facts, after: Facts) -> str:
    if before == after:
        return ""
    name = next(each for each in (*after, *before) if before.get(each) != after.get(each))
    if name not in before:
        return f"{name or 'it'} is new"
    if isinstance(after.get(name), Moving):
        return f"{name} is an iterator, which gives something else in each call"
    if name not in after:
        return f"{name or 'it'} is gone"
    then, now = before[name], after[name]
    if _is_tensor(then) and _is_tensor(now) and then[:-1] == now[:-1]:
        return f"{name} has other values"
    return f"{name or 'it'} was {_tell(then)} and is {_tell(now)}"


def _is_tensor(fact: Any) -> bool:
    return isinstance(fact, tuple) and len(fact) > 2


def _tell(fact: Any) -> str:
    if _is_tensor(fact):
        return ", ".join(map(str, fact[:-1]))
    if isinstance(fact, tuple):  # a number or text
        fact = fact[1]
    return f"{fact:.80}" if isinstance(fact, str) else f"{fact!r:.80}"
