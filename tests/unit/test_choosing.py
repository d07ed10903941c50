"""Filters that no cache keeps, or that there is no room for: which layers of a network have smaller ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.test_records import RECORD
from tvmconv.algorithms import table
from tvmconv.algorithms.cpu.model.cold import cold_lines
from tvmconv.building.builder import build
from tvmconv.building.decision import estimated
from tvmconv.building.decision.estimated import Option, options_of
from tvmconv.building.decision.rank import Room, algorithms_of, is_cold, within
from tvmconv.errors import TvmconvWarning
from tvmconv.problem import Problem
from tvmconv.runtime.bundle import read_bundle
from tvmconv.signature import format_signature, parse_signature
from tvmconv.support.cache import VARIABLE
from tvmconv.targets.target import Target
from tvmconv.tuning.records import Records


def layer(channels: int, pixels: int, dtype: str = "bf16", groups: int = 1) -> str:
    return f"conv2d-n1-i{channels}x{pixels}x{pixels}-o{channels}x{pixels}x{pixels}-k3x3-s1x1-d1x1-p1x1_1x1-g{groups}-NXC-XIO-{dtype}"


def test_a_network_is_cold_when_no_cache_keeps_its_filters() -> None:
    problem = parse_signature(layer(256, 14, "f32"))  # 2.4 MB, by Winograd 9.4
    target = Target.parse("znver5")  # 32 MB for a cluster
    assert not is_cold([], target, "default") and not is_cold([problem] * 4, target, "strict")
    assert is_cold([problem] * 4, target, "default") and is_cold([problem] * 8, target, "strict")
    assert not is_cold([problem] * 16, Target.parse("cuda:sm_80"), "default")


@pytest.mark.parametrize(
    ("signature", "target", "hot", "cold"),
    [
        (layer(256, 14), "znver5", "winograd4", "dot"),
        (layer(256, 14, "f32"), "znver5", "winograd4", "winograd4"),  # 328 and 594 us by winograd2, cold
        (layer(128, 28), "znver5", "winograd4", "winograd4"),
        (layer(512, 7), "znver5", "dot", "dot"),
        (layer(256, 14, "f32"), "znver4", "winograd4", "winograd4"),
        (layer(128, 8, "f32", 8), "znver4", "winograd4", "winograd2"),  # each group waits for memory
        (layer(192, 8, "f32", 32), "znver4", "winograd4", "direct"),
    ],
)
def test_cold_filters_decide_among_all_algorithms(signature: str, target: str, hot: str, cold: str) -> None:
    problem, known = parse_signature(signature), Target.parse(target)
    alone = algorithms_of([problem], known, "default")[problem]
    assert alone == tuple(each.name for each in table.applicable(problem, known)) and alone[0] == hot
    found = algorithms_of([problem], known, "default", [problem] * 2000)[problem]
    assert found[0] == cold
    sizes = {name: table.get(name).filter_bytes(problem, known) for name in alone}
    assert {*found} == {name for name in alone if sizes[name] <= sizes[cold]}  # records of others do not count


def test_small_filters_wait_and_large_ones_take_bandwidth() -> None:
    whole, grouped = (parse_signature(layer(256, 14, "f32", groups)) for groups in (1, 32))
    assert cold_lines(whole, 2**14) == {"lines.cold": 256, "lines.cold_wait": 256}
    assert cold_lines(whole, 2**22) == {"lines.cold": 2**16, "lines.cold_wait": 512}
    assert cold_lines(grouped, 2**20) == {"lines.cold": 2**14, "lines.cold_wait": 2**14}


def test_a_record_decides_if_filters_were_cold(tmp_path: Path) -> None:
    problem, target = parse_signature(layer(128, 8, "f32", 8)), Target.parse("znver4")
    network = [problem] * 2000
    for cold, expected in ((False, "winograd2"), (True, "winograd4")):
        records = Records(tmp_path / str(cold), shipped=False)
        record = replace(RECORD, signature=format_signature(problem), target="znver4", algorithm="winograd4", cold=cold)
        records.put([record])
        names = algorithms_of([problem], target, "default", network, records=records)[problem]
        assert names[0] == expected
        assert (records.best(problem, target, "default", names) == record) == cold


FAST, SMALL = Option("fast", 10, 400, True), Option("small", 20, 100, True)
ONE, TWO = (parse_signature(layer(channels, 14)) for channels in (16, 32))
OPTIONS = {
    ONE: [FAST, Option("between", 12, 200, True), SMALL, Option("least", 90, 50, False)],
    TWO: [FAST, replace(SMALL, cycles=40)],
}


@pytest.mark.parametrize(
    ("room", "one", "two"),
    [
        (None, "fast", "fast"),
        (Room(1200), "fast", "fast"),  # of one two filters, of two one
        (Room(1199), "between", "fast"),
        (Room(700), "small", "fast"),
        (Room(599), "small", "small"),
        (Room(0), "small", "small"),  # what is no default is taken for nothing
        (Room(0, 0.0), "fast", "fast"),
        (Room(0, 0.14), "between", "fast"),  # 4 of 30 cycles
        (Room(0, 0.13), "fast", "fast"),
        (Room(0, 0.7), "small", "fast"),
    ],
)
def test_what_saves_the_least_time_for_its_bytes_is_given_up(room: Room | None, one: str, two: str) -> None:
    taken = within(OPTIONS, {ONE: 2, TWO: 1}, room)
    assert (taken[ONE].algorithm, taken[TWO].algorithm) == (one, two)


def test_filters_that_layers_share_are_counted_once() -> None:
    shared = {ONE: 1}
    taken = within(OPTIONS, {ONE: 2, TWO: 1}, Room(800, filters=shared))
    assert taken[ONE] == taken[TWO] == FAST
    taken = within(
        OPTIONS, {ONE: 2, TWO: 1}, Room(799, filters=shared)
    )  # 4 cycles of two calls for 200 bytes of one filter
    assert (taken[ONE].algorithm, taken[TWO].algorithm) == ("between", "fast")


def test_room_holds_for_the_filters_of_a_network() -> None:
    target = Target.parse("znver4")
    network = [parse_signature(layer(channels, 14, "f32")) for channels in (64, 128, 128, 256)]
    plain = sum(each.filter_bytes for each in network)

    def taken(room: Room | None) -> int:
        names = algorithms_of(network, target, "default", network, room)
        return sum(table.get(names[each][0]).filter_bytes(each, target) for each in network)

    assert taken(None) > 2 * plain
    assert plain < taken(Room(2 * plain)) <= 2 * plain
    assert taken(Room(plain)) == plain


def test_filters_are_counted_as_kernels_read_them() -> None:
    problem, target = parse_signature(layer(192, 14)), Target.parse("znver5")  # 0.7 MB, by Winograd 5.3; L3 has 32
    assert not is_cold([problem] * 13, target, "strict")
    for count, expected in ((2, "winograd4"), (13, "dot")):
        assert algorithms_of([problem], target, "default", [problem] * count)[problem][0] == expected


def test_a_network_gets_the_kernels_that_it_is_faster_with(tmp_path: Path) -> None:
    problem = parse_signature(layer(256, 14))
    networks: list[tuple[str, list[Problem], Room | None, str]] = [
        ("alone", [], None, "winograd4"),
        ("cold", [problem] * 16, None, "dot"),
        ("small", [problem], Room(problem.filter_bytes), "dot"),
    ]
    for name, network, room, expected in networks:
        build([problem], tmp_path / name, "znver5", network=network, room=room, verify=False)
        assert [entry.algorithm for entry in read_bundle(tmp_path / name).entries] == [expected]


def test_layers_of_a_network_are_estimated_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))
    network, target, asked = (
        [parse_signature(layer(channels, 14)) for channels in (64, 128)],
        Target.parse("znver4"),
        [],
    )
    monkeypatch.setattr(estimated, "options_of", lambda *given: asked.append(given) or options_of(*given))
    found = algorithms_of(network, target, "default", network)
    assert len(asked) == 2 and found == algorithms_of(network, target, "default", network) and len(asked) == 2
    assert found == {each: algorithms_of([each], target, "default")[each] for each in network}
    algorithms_of(network[:1], target, "strict", network[:1])
    assert len(asked) == 3
    for path in (tmp_path / "cache").glob("??/*"):
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.warns(TvmconvWarning, match="is damaged"):
        assert algorithms_of(network, target, "default", network) == found
    assert len(asked) == 5
