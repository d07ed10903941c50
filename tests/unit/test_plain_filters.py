"""Which filters calls with plain ones pack before all tasks, which part by part, and which they read in place."""

from __future__ import annotations

from math import prod

import pytest

from tvmconv.algorithms.cpu import direct, winograd
from tvmconv.algorithms.cpu.direct import direct_windows
from tvmconv.algorithms.cpu.kn2row import define_prepacked, tap_windows
from tvmconv.algorithms.pairs import filter_in_pairs
from tvmconv.lowering.compiler import Choice, lower_choice
from tvmconv.lowering.cpu.lowering import workspace_bytes
from tvmconv.problem import Problem
from tvmconv.signature import parse_signature
from tvmconv.targets.target import CpuTarget

TRANSPOSED = "backprop2d-n1-i512x4x4-o256x8x8-k4x4-s2x2-d1x1-p1x1_1x1-g1-NXC-XIO-f32"
DILATED = "conv2d-n1-i512x21x21-o512x21x21-k3x3-s1x1-d8x8-p8x8_8x8-g1-NXC-XIO-f32"
TILED = "conv2d-n1-i512x7x7-o512x7x7-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32"


def _asked(signature: str, target: str = "znver3") -> tuple[Problem, CpuTarget]:
    return parse_signature(signature), CpuTarget.parse(target)


def _packs_parts(signature: str, prepacked: bool = False) -> bool:
    (packs,) = {window.packs_parts for window in direct_windows(*_asked(signature), prepacked=prepacked)}
    return packs


@pytest.mark.parametrize(
    "signature", [TRANSPOSED, TRANSPOSED.replace("NXC-XIO", "NCX-OIX"), TILED.replace("XIO", "OIX")]
)
def test_tasks_transpose_the_parts_that_they_use_of_a_filter_for_few_pixels(signature: str) -> None:
    assert _packs_parts(signature)
    assert not _packs_parts(signature, prepacked=True)


def test_the_copies_of_parts_are_smaller_than_the_filter() -> None:
    problem, target = _asked(TRANSPOSED)
    elements, lowered = 4 * 4 * 512 * 256, lower_choice(problem, target, Choice("direct"))
    assert 0 < workspace_bytes(lowered.module) < elements
    assert lowered.layout is not None
    assert lowered.layout.elements == elements


@pytest.mark.parametrize(
    "signature",
    [
        TRANSPOSED.replace("n1", "n2"),  # tasks of each image would copy the same
        TRANSPOSED.replace("4x4-o", "16x16-o").replace("8x8", "32x32"),  # and tasks of some rows
        TRANSPOSED.replace("i512", "i32"),  # the caches keep its copy
        "conv3d-n1-i256x4x4x4-o256x4x4x4-k3x3x3-s1x1x1-d1x1x1-p1x1x1_1x1x1-g1-NXC-OIX-f32",  # and of each plane
    ],
)
def test_a_filter_that_several_tasks_use_is_copied_once(signature: str) -> None:
    assert not _packs_parts(signature)


@pytest.mark.parametrize("signature", [TRANSPOSED, TILED])
def test_pairs_of_bf16_are_packed_part_by_part_too(signature: str) -> None:
    problem, target = _asked(signature.replace("f32", "bf16"), "znver4")
    (window,) = direct_windows(problem, target, vnni_factor=2)
    assert window.packs_parts
    lowered = lower_choice(problem, target, Choice("dot"))
    assert lowered.layout is not None
    assert lowered.layout.elements == prod(problem.filter_shape) // 2


@pytest.mark.parametrize(
    ("signature", "in_pairs"),
    [
        (TRANSPOSED, True),
        (TRANSPOSED.replace("NXC-XIO", "NCX-OIX"), False),
        (TRANSPOSED.replace("i512", "i511"), False),
        (TILED, False),
        (TILED.replace("XIO", "OIX"), False),
        ("conv2d-n1-i512x7x7-o64x7x7-k1x1-s1x1-d1x1-p0x0_0x0-g1-NXC-OIX-f32", True),
    ],
)
def test_channels_that_lie_together_in_a_filter_are_read_as_pairs(signature: str, in_pairs: bool) -> None:
    problem, target = _asked(signature.replace("f32", "bf16"), "znver4")
    filter_ = direct.define(problem, target, vnni_factor=2).func.params[1]
    assert filter_in_pairs(problem) == in_pairs
    assert filter_.dtype == ("uint32" if in_pairs else "uint16")
    assert prod(filter_.shape) == prod(problem.filter_shape) // (2 if in_pairs else 1)


def test_taps_of_a_large_filter_read_a_copy() -> None:
    """All pixels read it, vector by vector of rows that are far apart."""
    (window,) = tap_windows(*_asked(DILATED), 1, prepacked=False)
    assert window.stages_filter
    assert define_prepacked(*_asked(DILATED)) is None
    small = DILATED.replace("512", "32")
    (window,) = tap_windows(*_asked(small), 1, prepacked=False)
    assert not window.stages_filter
    assert define_prepacked(*_asked(small)) is not None


@pytest.mark.parametrize(
    ("signature", "apart"),
    [
        (TRANSPOSED, True),
        (TRANSPOSED.replace("XIO", "OIX"), False),  # taps lie together
        (TRANSPOSED.replace("k4x4-s2x2-d1x1-p1x1_1x1", "k7x7-s1x1-d1x1-p2x2_0x0"), False),  # pieces
        (TILED, False),
    ],
)
def test_winograd_transposes_filters_whose_lanes_lie_apart(signature: str, apart: bool) -> None:
    problem, target = _asked(signature)
    definition = winograd.define(problem, target, points=4)
    assert ("filter_pack0" in str(definition.func)) == apart


def test_rows_that_are_far_apart_are_transformed_before_all_tasks() -> None:
    def prepacked(signature: str, target: str) -> list[bool]:
        return [window.prepacked for window in winograd.define(*_asked(signature, target), points=4).windows]

    assert prepacked(TILED, "znver3") == [True]
    assert winograd.define_prepacked(*_asked(TILED), points=4) is None
    assert prepacked(TILED, "znver5") == [False]  # not measured
    assert prepacked(TILED.replace("XIO", "OIX"), "znver3") == [False]
    assert prepacked(TILED.replace("512", "256"), "znver3") == [False]
    wide = TILED.replace("512", "2048")
    assert prepacked(wide, "znver3") == [False]  # no cache keeps it
