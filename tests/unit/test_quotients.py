"""Which quotients TVM simplifies wrongly, and that definitions have none."""

from __future__ import annotations

import pytest
from tvm import tirx
from tvm.ir import Range
from tvm.sym import iter_map_simplify

from tvmconv.algorithms.quotients import check_quotients
from tvmconv.errors import CompilationError

INDEX = tirx.Var("i", "int32")
FALLING = (11 - INDEX // 20) // 8


def test_what_is_avoided_is_still_wrong() -> None:
    """Where this fails, TVM has fixed it, and the check can go."""
    (simplified,) = iter_map_simplify([FALLING], {INDEX: Range(0, 160)})
    values = [eval(str(each), {"i": 20}) for each in (FALLING, simplified)]
    assert values == [1, 0]


@pytest.mark.parametrize(
    "falling", [FALLING, INDEX + (3 - INDEX) % 5, (INDEX * -2 + 7) // 3, ((INDEX - 4 * INDEX) // 2) // 5], ids=str
)
def test_falling_numerators_are_refused(falling: tirx.Expr) -> None:
    with pytest.raises(CompilationError, match="its numerator must not fall as an index grows"):
        check_quotients([tirx.Evaluate(falling)])


@pytest.mark.parametrize("rising", [-((INDEX // 20 - 11) // 8), 7 - INDEX // 5, tirx.max(0, 3 - INDEX) // 2], ids=str)
def test_others_are_not(rising: tirx.Expr) -> None:
    check_quotients([rising])
