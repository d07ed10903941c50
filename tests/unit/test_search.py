"""The search: order, determinism, exhaustion, and that it finds what is there to find."""

from __future__ import annotations

from math import inf, log

import pytest

from benchmarks.gpu_candidates import Listed
from tvmconv.tuning.search import Candidate, Search, Sketch, Space

TILES = (1, 2, 4, 7, 8, 14, 28)
SPACES = [
    Space("direct", 1, "exact", (Sketch((TILES, (1, 2, 4), (1, 2, 4, 8)), (8, 2, 1)), Sketch((TILES, TILES), (4, 4)))),
    Space("packed", 1, "exact", (Sketch((TILES, (1, 2, 4), (1, 2, 4, 8)), (7, 1, 1)),)),
]
DEFAULTS = [Candidate("direct", 0, (8, 2, 1)), Candidate("packed", 0, (7, 1, 1)), Candidate("direct", 1, (4, 4))]
SIZE = 7 * 3 * 4 + 7 * 7 + 7 * 3 * 4


def cost(candidate: Candidate) -> float:
    """A smooth cost, least for one schedule of "packed"."""
    base = {"direct": 2.0, "packed": 1.0}[candidate.algorithm] + candidate.sketch
    best = (14, 4, 2)
    return base + sum(abs(log(d / b)) for d, b in zip(candidate.decisions, best, strict=False))


def run(seed: int, count: int, batch: int = 8) -> list[Candidate]:
    search, seen = Search(SPACES, seed, {}), []
    while len(seen) < count and (candidates := search.propose(min(batch, count - len(seen)))):
        for candidate in candidates:
            search.tell(candidate, cost(candidate))
        seen.extend(candidates)
    return seen


def test_defaults_come_first_those_of_the_first_sketches_before_the_others() -> None:
    assert run(0, 10)[:3] == DEFAULTS


def test_every_candidate_lies_in_a_space_and_comes_once() -> None:
    seen = run(0, 100)
    assert len(set(seen)) == 100
    assert all(any(candidate in space for space in SPACES) for candidate in seen)


@pytest.mark.parametrize("seed", [0, 7])
def test_the_same_seed_and_measurements_give_the_same_candidates(seed: int) -> None:
    assert run(seed, 60) == run(seed, 60)
    assert run(seed, 60) != run(seed + 1, 60)


def test_it_ends_when_everything_was_measured() -> None:
    assert len(run(0, 10_000)) == SIZE


def test_it_finds_the_fastest_without_measuring_everything() -> None:
    best = Candidate("packed", 0, (14, 4, 2))
    found = [best in run(seed, SIZE // 2) for seed in range(20)]
    assert sum(found) >= 19  # of random draws, half would


def test_what_was_measured_before_is_not_proposed_again() -> None:
    before = {candidate: cost(candidate) for candidate in run(0, 50)}
    after = Search(SPACES, 0, before).propose(SIZE)
    assert len(after) == SIZE - 50
    assert not before.keys() & set(after)


def test_candidates_that_failed_are_no_parents() -> None:
    search = Search(SPACES, 0, {})
    for candidate in search.propose(30):
        search.tell(candidate, inf)
    assert len(search.propose(30)) == 30


def test_a_space_without_choices_has_its_default_alone() -> None:
    search = Search([Space("constant", 1, "exact", (Sketch((), ()),))], 0, {})
    assert search.propose(10) == [Candidate("constant", 0, ())]
    assert search.propose(10) == []


@pytest.mark.parametrize(
    ("candidate", "inside"),
    [
        (DEFAULTS[0], True),
        (Candidate("packed", 0, (8, 2, 1)), False),
        (Candidate("direct", 2, (8, 2, 1)), False),
        (Candidate("direct", 0, (8, 2)), False),
        (Candidate("direct", 0, (9, 2, 1)), False),
        ("direct", False),
    ],
)
def test_membership(candidate: object, inside: bool) -> None:
    assert (candidate in SPACES[0]) is inside


def test_a_list_is_proposed_once_in_its_order() -> None:
    first, second, third = DEFAULTS
    listed = Listed([first, second, first, third], {second: 1.0})
    assert listed.propose(1) == [first]
    listed.tell(first, 1.0)
    assert listed.propose(5) == [third] and listed.propose(5) == []
