"""The inputs and answers that are kept while problems are measured in turns."""

from __future__ import annotations

import pytest

from tvmconv.measuring import cases
from tvmconv.signature import parse_signature

ONE = parse_signature("conv1d-n1-i4x8-o4x8-k1-s1-d1-p0_0-g1-NXC-XIO-f32")
OTHER = ONE.with_(bias=True)


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases, "_kept", {})


def test_a_case_is_made_once() -> None:
    first = cases.case_of(ONE)
    cases.case_of(OTHER)
    assert cases.case_of(ONE) is first


def test_the_oldest_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases, "KEPT_BYTES", 0)
    first = cases.case_of(ONE)
    assert cases.case_of(ONE) is first  # the last one stays
    cases.case_of(OTHER)
    assert cases.case_of(ONE) is not first
