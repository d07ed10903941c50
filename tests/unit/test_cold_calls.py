"""Calls with cold filters: their order, and their records."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import fake_candidates as fake
import numpy as np
import pytest
from fake_candidates import quiet_placements

from tvmconv.cli.sources import network_of
from tvmconv.measuring import race
from tvmconv.measuring.placements import PLACEMENTS
from tvmconv.measuring.race import Built
from tvmconv.signature import parse_signature
from tvmconv.targets.target import Target

LAYER = parse_signature("conv2d-n1-i64x7x7-o64x7x7-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32")


@pytest.mark.parametrize("packed", [None, (64, "float32")])
@pytest.mark.parametrize(("cold_bytes", "copies"), [(0, 1), (256, 1), (257, 2), (1024, 4)])
def test_calls_take_copies_of_the_filter_in_turn(
    monkeypatch: pytest.MonkeyPatch, packed: tuple[int, str] | None, cold_bytes: int, copies: int
) -> None:
    taken: list[np.ndarray] = []
    functions = {
        "tvmconv_pack": lambda filter_, made: np.copyto(made, filter_),
        "tvmconv_packed": lambda data, filter_, output: taken.append(filter_),
        "tvmconv_kernel": lambda data, filter_, output: taken.append(filter_),
    }
    monkeypatch.setattr(race, "tvm_ffi", SimpleNamespace(load_module=lambda path: functions, from_dlpack=lambda x: x))
    filter_ = np.arange(64, dtype=np.float32)
    call = Built("a.so", packed).call([np.zeros(1), filter_, np.zeros(1)], cold_bytes)
    for _ in range(2 * copies):
        call()
    places = [each.ctypes.data for each in taken]
    assert len({*places}) == copies and places[:copies] == places[copies:]
    assert all(np.array_equal(each, filter_) for each in taken)


def test_records_say_whether_filters_were_cold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with quiet_placements(len(PLACEMENTS)):
        hot = fake.tune(tmp_path, fake.good, trials=4)
        cold = fake.tune(tmp_path, fake.good, trials=4, cold=True)
    assert hot.record is not None and cold.record is not None
    assert not hot.record.cold and cold.record.cold
    machines = [each["machine"] for each in fake.trial_lines(tmp_path)]
    assert machines == [fake.MACHINE] * 4 + [f"{fake.MACHINE}, cold filters"] * 4


def test_what_no_cache_keeps() -> None:
    target = Target.parse("znver4")
    assert target.evicting == 2 * 2**25
    assert Target.parse("cuda:sm_80").evicting == 0


def test_a_network_is_a_model() -> None:
    def model(count: int, is_model: bool = True) -> object:
        return SimpleNamespace(is_model=is_model, nodes=[SimpleNamespace(problem=LAYER, family=None)] * count)

    assert network_of([model(2), model(3)]) == [LAYER] * 3
    assert network_of([model(2), model(3, is_model=False)]) == []
