"""What the tests of rewrites share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tvm
from tvm import s_tir, tirx

from tvmconv.errors import RewriteError

Rewrite = Callable[[Any], Any]


def check(rewrite: Rewrite, before: tirx.PrimFunc, after: tirx.PrimFunc) -> None:
    """Compare what a rewrite makes of a function's body, simplified, with another function's, as text."""

    def simplified(func: tirx.PrimFunc) -> str:
        return s_tir.transform.StmtSimplify()(tvm.IRModule({"main": func}))["main"].script()

    assert simplified(before.with_body(rewrite(before.body))) == simplified(after)


def check_refused(rewrite: Rewrite, before: tirx.PrimFunc, reason: str) -> None:
    """Check that a rewrite raises an error that says `reason`."""
    with pytest.raises(RewriteError, match=reason):
        rewrite(before.body)
