"""Filters that no cache keeps: which layers of a network are better off with smaller ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tvmconv.building.builder import build
from tvmconv.building.cold import is_better_exact, is_cold
from tvmconv.runtime.bundle import read_bundle
from tvmconv.signature import parse_signature
from tvmconv.targets.target import Target


def layer(channels: int, pixels: int, dtype: str = "bf16") -> str:
    return f"conv2d-n1-i{channels}x{pixels}x{pixels}-o{channels}x{pixels}x{pixels}-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-{dtype}"


def test_a_network_is_cold_when_no_cache_keeps_its_filters() -> None:
    problem = parse_signature(layer(256, 14))  # 1.2 MB, by Winograd 9.4
    target = Target.parse("znver5")  # 32 MB for a cluster
    assert not is_cold([], target) and not is_cold([problem] * 12, target)
    assert is_cold([problem] * 16, target)
    assert not is_cold([problem] * 16, Target.parse("cuda:sm_80"))


@pytest.mark.parametrize(
    ("signature", "better"),
    [
        (layer(256, 14), True),
        (layer(256, 14, "f32"), False),  # without dot products, Winograd spares more
        (layer(128, 28), False),
        (layer(256, 28), False),
        (layer(512, 7), False),  # exact anyway
    ],
)
def test_which_layers_are_better_exact(signature: str, better: bool) -> None:
    assert is_better_exact(parse_signature(signature), Target.parse("znver5")) == better


def test_a_network_gets_the_kernels_that_it_is_faster_with(tmp_path: Path) -> None:
    problem = parse_signature(layer(256, 14))
    for name, network, expected in (("alone", [], "winograd4"), ("cold", [problem] * 16, "dot")):
        build([problem], tmp_path / name, "znver5", network=network, verify=False)
        assert [entry.algorithm for entry in read_bundle(tmp_path / name).entries] == [expected]
