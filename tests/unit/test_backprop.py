"""The windows of transposed convolutions: what meets data, once; the rest is filled."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from strategies import Call, calls

from tvmconv import reference
from tvmconv.algorithms.backprop import backprop_axes, covers_output, interleaved_axes
from tvmconv.algorithms.subconvolution import Axis
from tvmconv.problem import Problem
from tvmconv.signature import parse_signature

Windows = Callable[[Problem], list[tuple[Axis, ...]]]
TRANSPOSED = calls(largest=4, channels=1, bias=False).filter(lambda call: call.op == "convolution_backprop_data")


@pytest.mark.parametrize("windows", [backprop_axes, interleaved_axes])
@settings(max_examples=60)
@given(call=TRANSPOSED)
def test_windows_have_each_output_that_meets_data_once(windows: Windows, call: Call) -> None:
    problem = call.problem().with_(data_format="NXC")
    written = np.zeros(problem.out_spatial, int)
    for axes in windows(problem):
        along = [[a.store_index(p, y) for p in range(a.phases) for y in range(a.outputs)] for a in axes]
        for place in product(*along):
            if all(0 <= at < places for at, places in zip(place, problem.out_spatial, strict=True)):
                written[place] += 1
    ones = reference.compute(problem, np.ones(problem.data_shape), np.ones(problem.filter_shape))
    met = ones.any(axis=(0, -1))
    assert written.max(initial=0) <= 1
    assert written[met].all()
    assert written.all() or not covers_output(problem)


def test_a_window_that_meets_no_data_is_none() -> None:
    """Phases of two taps have outputs that meet data; none of the phases of one tap has."""
    problem = parse_signature("backprop1d-n1-i20x2-o40x7-k6-s4-d9-p3_40-g1-NXC-OIX-f32")
    ((axis,),) = backprop_axes(problem)
    places = [axis.store_index(phase, y) for phase in range(axis.phases) for y in range(axis.outputs)]
    assert not covers_output(problem)
    ones = reference.compute(problem, np.ones(problem.data_shape), np.ones(problem.filter_shape))
    assert set(np.flatnonzero(ones[0, :, 0])) <= set(places) < set(range(7))
