"""Extents of one symbol that are equal, or not, for all numbers."""

from __future__ import annotations

import pytest

pytest.importorskip("tvm")
from tvm import tirx

from tvmconv.network.ir.free import equal
from tvmconv.network.ir.periods import equal_by_periods

H, W = (tirx.Var(name, "int64") for name in "hw")
FOURS = H + (4 - H % 4) % 4


def test_equal_extents() -> None:
    assert equal(FOURS // 2 * 2, FOURS)
    assert equal((H + 1) // 2 + H // 2, H)
    assert not equal(4, tirx.IntImm("int64", 5))
    assert equal(tirx.floormod(H, -4) + (4 - H % 4) % 4, 0)


@pytest.mark.parametrize(
    ("one", "other"),
    [(H // 2 * 2, H), (FOURS // 8 * 8, FOURS), (H % 7, H % 5), (H, W), (H + W // 2 * 2, H + W), (H * H // 2 * 2, H * H),
     (tirx.max(H, 2), H), (H // 257 // 257, H // 66049)],
)  # fmt: skip
def test_others(one: tirx.Expr, other: tirx.Expr) -> None:
    """Different ones, ones of two symbols, of other operations and of too long a period."""
    assert not equal_by_periods(one, other, H)
