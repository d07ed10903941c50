"""Charts of reports: positions of values, and labels of axes."""

from __future__ import annotations

import re

import pytest

from tvmconv.building.bench import BenchRow
from tvmconv.measuring.peak import Peak
from tvmconv.measuring.timing import Timing
from tvmconv.reporting.kernels import confirm, roof
from tvmconv.reporting.roofline import BOTTOM, LEFT, RIGHT, ROOM, TOP, draw_roofline
from tvmconv.reporting.svg import Scale
from tvmconv.signature import parse_signature

CONV = "conv2d-n1-i64x56x56-o64x56x56-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32"
LIMITS = Peak(flops=2e11, bf16_flops=8e11, bandwidth=2e10, cache_bandwidth=8e10, threads=2)


def row(signature: str, algorithm: str, rate: float) -> BenchRow:
    problem = parse_signature(signature)
    timing = Timing(problem.flops / rate, problem.flops / rate, 5)
    return BenchRow(signature, "any", "cpu", algorithm, "default", problem.flops, problem.nbytes, timing, None)


def test_axes() -> None:
    assert Scale(1, 100, 0, 200)(10) == 100 and Scale(0, 10, 200, 0, linear=True)(5) == 100
    assert Scale(0.9, 1100, 0, 1).ticks == [1, 3, 10, 30, 100, 300, 1000]
    assert Scale(1, 20, 0, 1).ticks == [1, 2, 5, 10, 20]
    assert Scale(1e-3, 1e9, 0, 1).ticks == [10.0**n for n in range(-3, 10)]
    assert Scale(31, 36, 0, 1).ticks == [32, 34, 36]  # less than a decade
    assert Scale(0, 40, 0, 1, linear=True).ticks == [0, 10, 20, 30, 40]


@pytest.mark.parametrize("limits", [LIMITS, None])
def test_points_and_roofs_lie_where_their_numbers_say(limits: Peak | None) -> None:
    rows = [row(CONV, "direct", 2e11), row(CONV.replace("i64x", "i8x"), "winograd4", 1e10)]
    anchors = {(each.signature, each.target): f"k{index}" for index, each in enumerate(rows)}
    drawn = draw_roofline(rows, limits, anchors)
    points = re.findall(r'<a href="#(k\d)"><path class="mark s(\d)" transform="translate\(([\d.]+),([\d.]+)\)', drawn)
    assert [point[:2] for point in points] == [("k0", "0"), ("k1", "1")]
    (x0, y0), (x1, y1) = ((float(x), float(y)) for _, _, x, y in points)
    assert LEFT < x1 < x0 < RIGHT and TOP < y0 < y1 < BOTTOM
    y = Scale(1e10 / 1e9 / ROOM, 2e11 / 1e9 * ROOM, BOTTOM, TOP)
    assert (y0, y1) == (pytest.approx(y(200), abs=0.06), pytest.approx(y(10), abs=0.06))
    if limits:
        assert f",{y0:.1f}H{RIGHT:.1f}" in drawn  # the first kernel is at the peak
        assert "f32: 200.0 GFLOP/s" in drawn and "memory: 20.0 GB/s" in drawn and "bf16" not in drawn


def test_the_roof_of_a_kernel() -> None:
    dense, few = (
        row(CONV, "direct", 1e9),
        row(CONV.replace("i64x", "i1x").replace("k3x3", "k1x1").replace("1x1_1x1", "0x0_0x0"), "direct", 1e9),
    )
    assert roof(dense, LIMITS) == 2e11
    assert roof(few, LIMITS) == few.flops / few.nbytes * 8e10 < 2e11
    assert roof(row(CONV.replace("f32", "bf16"), "dot", 1e9), LIMITS) == 8e11
    assert roof(dense, None) is None


@pytest.mark.parametrize(
    ("signature", "algorithm", "most"),
    [
        (CONV, "direct", 1.05 / (166 / 168) ** 2),  # rows of 56 outputs with 3 taps each, one on padding at either end
        (CONV.replace("k3x3", "k1x1").replace("p1x1_1x1", "p0x0_0x0"), "direct", 1.05),
        (CONV.replace("conv2d", "backprop2d"), "direct", 1.05 / (166 / 168) ** 2),
        (CONV, "winograd4", 8.0),
    ],
)
def test_limits_hold_up_to_what_an_algorithm_may_leave_out(
    signature: str, algorithm: str, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tvmconv.reporting.kernels.measure_again", lambda threads: LIMITS)
    assert confirm(LIMITS, [row(signature, algorithm, 0.99 * most * LIMITS.flops)]) is LIMITS
    assert confirm(LIMITS, [row(signature, algorithm, 1.01 * most * LIMITS.flops)]) is None
