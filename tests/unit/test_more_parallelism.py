"""Bounds of two ways of sharing work, for plans and kernels with known times."""

from __future__ import annotations

import pytest

from benchmarks.side_by_side import needs_of, rows_of
from benchmarks.simulated_cores import LOOP, Simulated
from benchmarks.step_orders import WAKE, Step, by_levels, cut_evenly, in_turn, longest_way, side_by_side
from tvmconv.errors import SourceError
from tvmconv.network.emit.network_plan import IF, Array, NetworkPlan, PlanStep, Region, Storage

NONE = frozenset[int]()
# One step, two that need it, of two tasks each, and one that needs both.
DIAMOND = [
    Step(Simulated([(4, [2.0])])),
    Step(Simulated([(4, [3.0, 3.0])]), frozenset({0})),
    Step(Simulated([(4, [4.0, 4.0])]), frozenset({0})),
    Step(Simulated([(4, [1.0])], between=5), frozenset({1, 2})),
]


def test_branches_run_side_by_side_where_there_are_threads() -> None:
    assert sum(each.does.makespan() for each in DIAMOND) == 2 + 3 + 4 + 5 + 1
    assert side_by_side(DIAMOND, 4) == 2 + 4 + 5 + 1
    assert side_by_side(DIAMOND, 2) == 2 + 4 + 3 + 5 + 1
    assert side_by_side(DIAMOND, 3) == 2 + 2 * 3 + 5 + 1  # one thread has both shorter tasks
    assert side_by_side(DIAMOND, 1) == 2 + 8 + 6 + 5 + 1
    assert side_by_side([], 4) == 0
    assert longest_way(DIAMOND, [each.does.longest() for each in DIAMOND]) == [12, 9, 10, 6]


def test_waking_delays_a_step_alone() -> None:
    one, two = LOOP, LOOP + 0.5
    assert side_by_side(DIAMOND, 4, 0.5) == pytest.approx((2 + one) + (4 + two) + 5 + (1 + one))


def test_a_step_has_no_more_threads_than_it_asks_for() -> None:
    assert side_by_side([Step(Simulated([(2, [1.0, 1.0, 1.0])])), Step(Simulated([(1, [2.0])]))], 8) == 2
    assert side_by_side([Step(Simulated([(1, [1.0, 1.0, 1.0])]))], 8) == 3


def test_levels_have_one_loop_after_another() -> None:
    assert by_levels(DIAMOND, 4) == 2 + 4 + 5 + 1
    assert by_levels(DIAMOND, 2) == 2 + (4 + 3) + 5 + 1
    assert by_levels(DIAMOND, 4, 0.5) == pytest.approx(12 + 3 * LOOP + 3 * 0.5)
    two = [Step(Simulated([(4, [1.0, 1.0]), (4, [5.0])])), Step(Simulated([(2, [2.0, 2.0])]))]
    assert by_levels(two, 8) == 2 + 5
    assert by_levels([], 4) == 0


def test_a_step_of_nothing_is_passed() -> None:
    assert side_by_side([Step(Simulated([])), Step(Simulated([(1, [2.0])]), frozenset({0}))], 2) == 2


def test_loops_are_cut_as_far_as_waking_pays() -> None:
    does = Simulated([(2, [WAKE * 50, WAKE * 50]), (8, [1.0] * 16), (1, [WAKE])], between=3)
    assert cut_evenly(does, 64) == Simulated([(10, [WAKE * 10] * 10), (8, [1.0] * 16), (1, [WAKE])], between=3)
    assert cut_evenly(does, 4).loops[0] == (4, [WAKE * 25] * 4)


def test_lines_of_a_network() -> None:
    assert in_turn(DIAMOND, 4) == 2 + 3 + 4 + 5 + 1
    (row,) = rows_of("diamond", {2: DIAMOND})
    assert [cell.split()[0] for cell in row[:5]] == ["diamond", "2", "15", "15", "15"]
    (row,) = rows_of("diamond", {4: DIAMOND})
    assert [cell.split()[0] for cell in row] == ["diamond", "4", "15", "12", "12", "10", "10", "12", "6"]


def test_steps_wait_for_what_writes_their_arguments() -> None:
    def value(region: Region) -> Array:
        return Array(Storage(region, 4), (1,), "float32")

    data, filters, a, b, out = map(value, (Region.INPUT, Region.WEIGHTS, Region.ARENA, Region.ARENA, Region.OUTPUT))
    steps = [PlanStep("f", (data, filters, a)), PlanStep("f", (data, filters, b)), PlanStep("g", (a, b, out))]
    assert needs_of(NetworkPlan(steps)) == [NONE, NONE, frozenset({0, 1})]
    with pytest.raises(SourceError, match="has an If"):
        needs_of(NetworkPlan([PlanStep(IF, (data,), passed=1), *steps]))
