"""Kernels that are slow by estimate are reported by a build."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest

import tvmconv
from tvmconv.building.decision.slow import slow
from tvmconv.signature import parse_signature
from tvmconv.targets.target import Target

CPU = Target.parse("x86-64-v3")
# Each group reads almost no data, in places far apart.
SLOW = "conv3d-n1-i1225x6x6x6-o1225x6x6x6-k3x3x3-s1x1x1-d11x11x11-p11x11x11_11x11x11-g1225-NCX-OIX-f16"
DENSE = "conv2d-n1-i64x14x14-o64x14x14-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32"


def test_what_is_far_from_the_roofline_is_slow() -> None:
    assert "planar is estimated at" in str(slow(parse_signature(SLOW), CPU, "planar"))
    assert "without what makes the others fast" in str(slow(parse_signature(DENSE), CPU, "plain"))
    assert slow(parse_signature(DENSE), CPU, "direct") is None
    tiny = parse_signature("conv2d-n1-i4x4x4-o4x4x4-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32")
    assert slow(tiny, CPU, "plain") is None  # nobody waits for it
    assert slow(parse_signature(DENSE), Target.parse("cuda:sm_80"), "cuda_direct") is None  # GPUs have other estimates


def test_a_build_says_which_kernels_are_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache keeps what a build said."""
    problem = parse_signature(DENSE)
    for name, share in (("fast", 0.1), ("slow", 100.0)):
        monkeypatch.setenv("TVMCONV_CACHE", str(tmp_path / name))
        monkeypatch.setattr("tvmconv.building.decision.slow.SHARE", share)
        for bundle in (tmp_path / f"{name}.bundle", tmp_path / f"{name}_again.bundle"):
            with warnings.catch_warnings(record=True) as found:
                warnings.simplefilter("always")
                tvmconv.build([problem], bundle)
            said = [str(each.message) for each in found if "slow: " in str(each.message)]
            assert len(said) == (name == "slow")
            assert all(
                re.search(r"slow: \w+ is estimated at .*tvmconv explain conv2d.* says why", each) for each in said
            )
            monkeypatch.setattr("tvmconv.building.decision.slow.SHARE", 0.1)
