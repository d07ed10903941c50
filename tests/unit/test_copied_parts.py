"""Tests of which windows of one axis copy data part by part."""

import pytest

from tvmconv.algorithms.cpu.direct import direct_windows
from tvmconv.algorithms.cpu.direct_plan import plan_windows
from tvmconv.signature import parse_signature
from tvmconv.targets.target import CpuTarget, Target


def _copies_parts(signature: str, name: str = "znver3") -> bool:
    target = Target.parse(name)
    assert isinstance(target, CpuTarget)
    (window,) = plan_windows(direct_windows(parse_signature(signature), target, prepacked=True), target)
    plan = window.plans[0]
    copies = len(window.axes) == 1 and not plan.data_at_once
    if copies:
        chunks, parts = plan.chunks[1], plan.parts[1]
        # Nothing is copied twice, and a part stays in half of the cache.
        assert chunks == 1
        assert 4 * window.axes[-1].extent * window.pixel // parts <= target.l2 // 2
    return copies


LONG = "conv1d-n1-i384x8000-o24x4000-k3-s2-d1-p1_0-g1-NXC-XIO-f32"


@pytest.mark.parametrize("target", ["znver3", "znver4"])
@pytest.mark.parametrize("layout", ["NXC-XIO", "NCX-OIX"])
def test_data_that_no_second_level_cache_keeps_is_copied_part_by_part(layout: str, target: str) -> None:
    assert _copies_parts(LONG.replace("NXC-XIO", layout), target)


@pytest.mark.parametrize(
    "signature",
    [
        LONG.replace("8000", "400").replace("4000", "200"),  # the cache keeps it
        LONG.replace("x8000", "x7999").replace("x4000", "x3999").replace("p1_0", "p0_0"),  # read in place
        LONG.replace("4000", "3998").replace(
            "8000", "7996"
        ),  # no number of parts is as long as the threads that share them
        "conv2d-n1-i256x56x56-o512x28x28-k1x1-s2x2-d1x1-p0x0_0x0-g1-NXC-XIO-f32",  # pixels copied together
        "conv1d-n1-i64x4798-o16x4798-k3-s1-d1-p1_1-g1-NXC-XIO-f32",  # the last tile is shifted
        LONG.replace("o24", "o384"),  # multiplying it takes longer
    ],
)
def test_other_data_is_copied_at_once(signature: str) -> None:
    assert not _copies_parts(signature)


def test_where_parts_were_not_measured_data_is_copied_at_once() -> None:
    assert not _copies_parts(LONG, "znver5")
