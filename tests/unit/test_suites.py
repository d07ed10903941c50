"""The benchmark suites hold what they say."""

from __future__ import annotations

from math import prod
from pathlib import Path

import pytest

from benchmarks.compare import NETWORKS
from tvmconv.frontends import read_uses

FOLDER = Path(__file__).parents[2] / "benchmarks/suites"
SUITES = [FOLDER / f"{name}.toml" for name in NETWORKS]
VIDEO = SUITES[0].parent / "gpu/video_vae.toml"
# The largest takes some 50 ms on two cores, so that all suites against all peers stay a matter of minutes.
MOST_FLOPS = 10e9


@pytest.mark.parametrize("path", SUITES, ids=lambda path: path.stem)
def test_a_suite_is_distinct_cheap_layers(path: Path) -> None:
    uses = read_uses(str(path))
    assert 5 <= len(uses) <= 20
    for use in uses:
        assert len(use.places) == 1
        problem = use.problem
        assert (problem.batch, problem.dtype, problem.data_format, problem.filter_format) == (1, "f32", "NXC", "XIO")
        assert 0 < problem.flops <= MOST_FLOPS


def test_the_suites_cover_both_operations_in_all_ranks() -> None:
    problems = [use.problem for path in SUITES for use in read_uses(str(path))]
    assert {(problem.op, problem.rank) for problem in problems} == {
        (op, rank) for op in ("convolution", "convolution_backprop_data") for rank in (1, 2, 3)
    }
    assert f"{len(problems)} shapes" in (SUITES[0].parents[2] / "README.md").read_text()
    assert any(1 < problem.groups < problem.in_channels for problem in problems)


def test_reported_shapes_are_distinct_and_of_one_layout() -> None:
    uses = read_uses(str(FOLDER / "reported.toml"))
    assert all(len(use.places) == 1 and 0 < use.problem.flops <= 2 * MOST_FLOPS for use in uses)
    assert {(p.dtype, p.data_format, p.filter_format) for p in (use.problem for use in uses)} == {("f32", "NXC", "XIO")}


def test_filters_are_the_work_of_their_suite() -> None:
    problems = [use.problem for use in read_uses(str(FOLDER / "filters.toml"))]
    assert len(set(problems)) == len(problems) >= 30
    assert {problem.rank for problem in problems} == {1, 2, 3}
    assert {problem.op for problem in problems} == {"convolution", "convolution_backprop_data"}
    for problem in problems:
        assert (problem.dtype, problem.data_format, problem.filter_format) == ("f32", "NXC", "XIO")
        assert prod(problem.filter_shape) > 2 * (prod(problem.data_shape) + prod(problem.output_shape))


def test_the_video_decoder_is_causal_and_for_gpus() -> None:
    """Time is padded at the front alone, by what keeps its length, and space on both sides."""
    uses = read_uses(str(VIDEO))
    assert all(len(use.places) == 1 for use in uses)
    for problem in (use.problem for use in uses):
        assert (problem.rank, problem.batch, problem.dtype, problem.data_format) == (3, 1, "bf16", "NXC")
        assert problem.out_spatial == problem.in_spatial
        assert problem.pads_begin[0] == problem.kernel[0] - 1 and problem.pads_end[0] == 0
        assert problem.pads_begin[1:] == problem.pads_end[1:]
    channels = {problem.in_channels for problem in (use.problem for use in uses)}
    assert {96, 192, 384} <= channels
    assert max(use.problem.flops for use in uses) > 10 * MOST_FLOPS  # not for a CPU
