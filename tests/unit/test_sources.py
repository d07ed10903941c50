"""What the commands take from their sources."""

from __future__ import annotations

from tvmconv.cli.sources import problems_of
from tvmconv.frontends import read_model

SIGNATURE = "conv1d-n1-i4x8-o4x8-k1-s1-d1-p0_0-g1-NXC-XIO-f32"


def test_a_problem_counts_as_often_as_it_stands_there() -> None:
    model = read_model(SIGNATURE)
    assert len(problems_of([model])) == 1 and problems_of([model, model]) == problems_of([model]) * 2
