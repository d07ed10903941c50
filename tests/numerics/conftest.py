"""What the tests of compiled kernels share."""

from __future__ import annotations

from pathlib import Path

import pytest
from toys import compile_bundle, small_problem

from tvmconv import ops


@pytest.fixture(scope="session")
def small_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a bundle with small convolutions of every type, a transposed one, and edge cases."""
    problems = [small_problem(dtype, bias) for dtype in ("f32", "f16", "bf16") for bias in (False, True)]
    problems += [
        ops.convolution_backprop_data(
            (1, 7, 6, 10), (3, 3, 9, 10), strides=(2, 2), dilations=(1, 1), pads_begin=(1, 1), pads_end=(0, 0)
        ),
        small_problem(batch=0),
        small_problem(in_channels=0, bias=True),
    ]
    return compile_bundle(tmp_path_factory.mktemp("bundle") / "small", problems)
