"""Which records of a search ship: those that gain on today's default."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("tvm")

from benchmarks.ship_records import by_signature, is_current, several, worth_shipping
from tvmconv.algorithms import table
from tvmconv.lowering.compiler import default_choice, samples, sketches_of
from tvmconv.signature import parse_signature
from tvmconv.targets.target import Target
from tvmconv.tuning.records import Record

SIGNATURE = "conv2d-n1-i64x14x14-o64x14x14-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32"
TARGET = Target.parse("znver4")


def _record(algorithm: str, seconds: float, sketch: int = 0, change: int = 0) -> Record:
    """Return a record of an algorithm's default decisions, the first of them changed; the default took a second."""
    made = sketches_of(algorithm, parse_signature(SIGNATURE), TARGET)[1][0]
    first, *rest = (int(each.attrs[0][int(made.trace.decisions[each])]) for each in samples(made))
    decisions = (first + change, *rest)
    return Record(SIGNATURE, "znver4", algorithm, 1, sketch, decisions, seconds, 1.0, 8, 0, "a CPU", "2026-11-26", {})


def _shipped(*records: Record) -> list[Record]:
    (known,) = by_signature(records).values()
    return worth_shipping(known, TARGET)


def test_what_gains_ships() -> None:
    assert default_choice(parse_signature(SIGNATURE), TARGET).algorithm.startswith("winograd")
    better, hardly = _record("direct", 0.9, 1), _record("direct", 0.99, 1)
    assert (_shipped(better), _shipped(hardly)) == ([better], [])


def test_the_default_does_not_ship_whatever_it_took() -> None:
    name = default_choice(parse_signature(SIGNATURE), TARGET).algorithm
    assert _shipped(_record(name, 0.5)) == []
    assert len(_shipped(_record(name, 0.5, change=1))) == 1


def test_an_exact_one_for_strict_ships_beside_the_best_and_never_alone() -> None:
    name = default_choice(parse_signature(SIGNATURE), TARGET).algorithm
    best, exact, default = _record(name, 0.99), _record("direct", 1.2, 1), _record("direct", 1.2)
    assert _shipped(exact, best) == [best, exact]
    assert _shipped(default, best) == []
    assert several([exact, best]) == {SIGNATURE: {name: 990000.0, "direct": 1200000.0}}


def test_records_of_older_versions_are_left_out() -> None:
    record = _record("direct", 0.9, 1)
    current = replace(record, version=table.get("direct").version)
    older, gone = replace(current, version=current.version - 1), replace(current, algorithm="gone")
    assert [is_current(each) for each in (current, older, gone)] == [True, False, False]
