"""Which windows take a large filter block by block, and prefetch it."""

from __future__ import annotations

from typing import Any

import pytest

from tvmconv.algorithms.cpu.direct import direct_windows
from tvmconv.algorithms.cpu.windows.window import FEW_PIXELS, STREAMED_PIXELS, Window
from tvmconv.lowering import compiler
from tvmconv.lowering.common.entry_points import EntryPoints
from tvmconv.problem import Problem
from tvmconv.signature import parse_signature
from tvmconv.targets.target import CpuTarget


def _pointwise(pixels: int, channels: int, outputs: int, target: str, prepacked: bool = True) -> Window:
    signature = f"conv1d-n1-i{channels}x{pixels}-o{outputs}x{pixels}-k1-s1-d1-p0_0-g1-NXC-XIO-f32"
    (window,) = direct_windows(parse_signature(signature), CpuTarget.parse(target), prepacked=prepacked)
    return window


@pytest.mark.parametrize("target", ["znver3", "znver5"])
def test_a_filter_is_prefetched_where_multiplying_hides_it(target: str) -> None:
    """A single pixel only reads."""
    windows = [
        _pointwise(pixels, 1024, 1024, target) for pixels in (1, STREAMED_PIXELS - 1, STREAMED_PIXELS, FEW_PIXELS)
    ]
    assert [window.streams_filter for window in windows] == [False, False, True, True]
    assert all(window.by_blocks for window in windows)


def test_many_pixels_are_taken_by_blocks_where_a_task_would_fill_the_second_level_cache() -> None:
    """That of a Zen 3 has 512 KiB, that of a Zen 5 1 MiB."""
    assert _pointwise(500, 768, 3072, "znver3").by_blocks
    assert not _pointwise(500, 768, 3072, "znver5").by_blocks
    assert not _pointwise(500, 256, 256, "znver3").by_blocks


def test_long_rows_are_whole_bands_with_plain_filters_too() -> None:
    """Both have the same choices; 523 tiles of 6 pixels divide into none."""
    rows = {_pointwise(3136, 256, 1024, "znver3", prepacked).row for prepacked in (False, True)}
    assert rows == {528 * 6}


@pytest.mark.parametrize(
    "sizes", ["i320x32x32-o56x32x32-k1x1-{}-f16", "i96x56x56-o56x56x56-k1x1-{}-bf16", "i96x56x56-o56x56x56-k1x1-{}-f32"]
)
def test_packed_filters_have_the_choices_of_those_in_place(sizes: str) -> None:
    """7 vectors are tiles of one of them, whose parts of the filter in place are half cache lines; both have 8."""
    problem = parse_signature(f"conv2d-n1-{sizes}".format("s1x1-d1x1-p0x0_0x0-g1-NXC-XIO"))
    target = CpuTarget.parse("x86-64-v3")
    windows = [direct_windows(problem, target, prepacked=prepacked)[0] for prepacked in (False, True)]
    assert [(window.extra_vectors, window.large) for window in windows] == [(1, False)] * 2
    samples = [{len(compiler.samples(each)) for each in _sketches(problem, target, way)} for way in EntryPoints]
    assert samples == [{4}] * len(samples)


def _sketches(problem: Problem, target: CpuTarget, entry_points: EntryPoints) -> tuple[Any, ...]:
    return compiler.sketches_of("direct", problem, target, entry_points)[1]
