"""Who wins the final race, and in how many placements it must be faster."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from tvmconv.measuring.placements import PLACEMENTS
from tvmconv.tuning.finalists import is_faster, noise_of, ranking, winner
from tvmconv.tuning.search import Candidate, Sketch, Space

EVEN = (1.0,) * 8
DIRECT, OTHER = Candidate("direct", 0, (1,)), Candidate("direct", 0, (2,))
TRANSFORM, GROUPED = Candidate("winograd4", 0, (1,)), Candidate("grouped", 0, (1,))
SPACES = [
    Space("winograd4", 1, "transform", (Sketch(((1, 2),), (1,)),)),
    Space("direct", 1, "exact", (Sketch(((1, 2),), (1,)),)),
    Space("grouped", 1, "exact", (Sketch(((1,),), (1,)),)),
]


def placed(seconds: float, *others: float) -> tuple[float, ...]:
    return (*others, *(seconds,) * (8 - len(others)))


@pytest.mark.parametrize(
    ("candidate", "noise", "wins"),
    [
        (placed(0.9), 0.0, True),
        (placed(0.995), 0.0, False),  # too little to gain
        (placed(0.9, 1.2), 0.0, True),  # in all placements but one
        (placed(0.9, 1.0, 1.2), 0.0, False),
        (placed(0.5, 1.2, 1.2), 0.0, False),  # however much it gains elsewhere
        (placed(1.0, 0.5), 0.0, False),  # fast in one placement alone
        (placed(0.95), 0.02, True),
        (placed(0.95), 0.06, False),  # no more than noise
    ],
)
def test_the_default_wins_unless_another_is_clearly_faster(
    candidate: tuple[float, ...], noise: float, wins: bool
) -> None:
    assert is_faster(candidate, EVEN, noise) is wins
    assert winner({OTHER: candidate, DIRECT: EVEN}, DIRECT, noise) == (OTHER if wins else DIRECT)


def test_without_a_working_default_the_fastest_wins() -> None:
    assert winner({OTHER: placed(0.9), GROUPED: placed(0.8, 5.0, 5.0)}, DIRECT, 0.5) == GROUPED


def test_noise_is_what_two_timings_of_one_kernel_differ_by() -> None:
    assert noise_of(EVEN, EVEN) == 0
    assert noise_of(EVEN, placed(1.0, 2.0)) == 0  # one exception
    assert noise_of(EVEN, placed(1.0, 2.0, 1.25)) == pytest.approx(0.2)


def test_the_ranking_has_the_winner_what_strict_math_may_use_and_what_beats_the_default() -> None:
    seconds = {TRANSFORM: EVEN, DIRECT: placed(2.0), OTHER: placed(1.5), GROUPED: placed(0.995)}
    # Half a percent faster is not clearly faster, but clearly so than the default of strict math.
    assert ranking(seconds, SPACES, EVEN) == [TRANSFORM, GROUPED]
    assert ranking({**seconds, GROUPED: placed(3.0)}, SPACES, EVEN) == [TRANSFORM, OTHER]
    assert ranking({**seconds, GROUPED: placed(0.5)}, SPACES, EVEN) == [GROUPED]
    assert ranking({TRANSFORM: EVEN, DIRECT: placed(0.8)}, SPACES, EVEN) == [DIRECT]


def test_arrays_lie_where_the_placement_says() -> None:
    arrays = [np.arange(5, dtype=np.float32), np.ones((2, 0, 3), np.float16), np.full((1, 1025), 7, np.float32)]
    assert len({(placement.offsets, placement.huge) for placement in PLACEMENTS}) == len(PLACEMENTS)
    for placement in PLACEMENTS:
        copies = placement.copy(arrays)
        for number, (array, copy) in enumerate(zip(arrays, copies, strict=True)):
            assert copy.ctypes.data % 4096 == placement.offsets[number % len(placement.offsets)]
            assert copy.flags.c_contiguous and copy.flags.writeable
            # As kernels have them checked, also of no elements.
            assert copy.strides == tuple(copy.itemsize * prod(copy.shape[axis + 1 :]) for axis in range(copy.ndim))
            assert np.array_equal(array, copy) and array.dtype == copy.dtype
        assert len({copy.ctypes.data for copy in placement.copy(arrays) + copies}) == 2 * len(arrays)
