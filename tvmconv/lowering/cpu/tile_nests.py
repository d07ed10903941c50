"""Nests of loops that a space marks by their ROLE in a block of tiles."""

from __future__ import annotations

from typing import Any

from tvm import tirx

from ...algorithms.annotations import ROLE
from ...errors import RewriteError


def nest_of(loop: Any) -> tuple[dict[str, Any], Any]:
    """Return the marked loops from `loop` inwards by their roles, and what they enclose.

    Raises
    ------
    RewriteError
        If a loop between them is not marked.
    """
    loops: dict[str, Any] = {}
    body = loop
    while isinstance(body, tirx.For):
        if ROLE not in body.annotations:
            raise RewriteError(f"an unmarked loop over {body.loop_var} in a nest of tiles")
        loops[str(body.annotations[ROLE])] = body
        body = body.body
    return loops, body
