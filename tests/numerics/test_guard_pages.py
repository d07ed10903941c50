"""No kernel reads or writes outside its arrays: each lies against memory that may not be touched.

`campaign.guarded` places them, packed filters too; that it notices is tested in test_campaign.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from campaign.check import Case
from kernels import isa
from toys import small_problem

from tvmconv import ops
from tvmconv.lowering.compiler import default_choice
from tvmconv.problem import Problem
from tvmconv.targets.target import Target


def _problems() -> Iterable[Problem]:
    for dtype in ("f32", "f16", "bf16"):
        yield small_problem(dtype, bias=True)
    yield small_problem(in_channels=0, bias=True)
    for data_format in ("NXC", "NCX"):
        for filter_format in ("XIO", "OIX"):
            yield small_problem(data_format=data_format, filter_format=filter_format)
    for groups, inputs, outputs in ((3, 9, 15), (5, 5, 5), (17, 17, 34), (16, 16, 16), (4, 12, 16), (8, 32, 32)):
        for dtype in ("f32", "bf16"):
            yield small_problem(dtype, groups=groups, in_channels=inputs, out_channels=outputs)
    for extents in ((10, 14), (9, 11)):
        for auto_pad in ("valid", "same_upper"):
            # Winograd: whole tiles read in place, and tiles that reach outside.
            yield ops.convolution(
                (2, *extents, 24), (3, 3, 24, 40), strides=(1, 1), dilations=(1, 1), auto_pad=auto_pad
            )
    pads = {"strides": (2, 3), "dilations": (2, 1), "pads_begin": (3, 0), "pads_end": (1, 2)}
    yield ops.convolution((1, 11, 13, 3), (3, 5, 3, 40), **pads)
    yield ops.convolution((2, 30, 5), (4, 5, 33), strides=(3,), dilations=(2,), pads_begin=(2,), pads_end=(0,))
    yield ops.convolution((1, 5, 6, 7, 6), (2, 3, 2, 6, 18), strides=(1, 2, 1), dilations=(1,) * 3, auto_pad="valid")
    yield ops.convolution((1, 1, 1, 129), (1, 1, 129, 1), strides=(1, 1), dilations=(1, 1), auto_pad="valid")
    # Rows whose last tile is shifted inwards, and pixels copied together.
    yield ops.convolution((2, 7, 7, 18), (1, 1, 18, 48), strides=(1, 1), dilations=(1, 1), auto_pad="valid")
    yield ops.convolution((2, 9, 15, 18), (1, 1, 18, 48), strides=(2, 2), dilations=(1, 1), auto_pad="valid")
    # A filter that is prefetched, also beyond its end.
    yield ops.convolution_backprop_data(
        (1, 3, 4, 520), (4, 4, 512, 520), strides=(2, 2), dilations=(1, 1), auto_pad="valid"
    )
    for dtype in ("f32", "f16"):
        for attributes in (pads, {**pads, "strides": (1, 1)}, {**pads, "strides": (3, 2), "dilations": (1, 2)}):
            yield ops.convolution_backprop_data((2, 5, 7, 18), (3, 4, 7, 18), dtype=dtype, **attributes)
    yield ops.convolution_backprop_data(
        (1, 6, 4, 8), (2, 2, 3, 8), (20, 9), strides=(2, 2), dilations=(1, 1), groups=2, auto_pad="same_lower"
    )


# Where vectors are those of AVX2 anyway, its kernels are the host's.
HAVE_WIDER = "avx512f" in Target.parse("host").features
TARGETS = ["host", *[pytest.param("x86-64-v3", marks=isa("x86-64-v3"))] * HAVE_WIDER]


@pytest.mark.parametrize("prepacked", [False, True])
@pytest.mark.parametrize("target", TARGETS)
def test_guard_pages(target: str, prepacked: bool, try_kernels: Callable[..., None]) -> None:
    """This CPU's kernels as they ship."""
    cpu = Target.parse(target)
    cases = [Case(each, cpu, 0, ((default_choice(each, cpu), prepacked),)) for each in dict.fromkeys(_problems())]
    try_kernels(cases[prepacked :: 1 + prepacked], quick=prepacked or target != "host")
