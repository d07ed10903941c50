"""Work that threads share: rows of images, or channels where the filter is larger than the data. Golden files have both."""

from __future__ import annotations

import pytest

from tvmconv.algorithms import table as algorithms
from tvmconv.algorithms.cpu.model.tasks import rows_first
from tvmconv.signature import parse_signature
from tvmconv.targets.target import Target

POINTWISE = "k1x1-s1x1-d1x1-p0x0_0x0-g1"
ROWS = {
    f"conv2d-n1-i64x14x14-o384x14x14-{POINTWISE}-NXC-XIO-f32": ("direct", True),
    f"conv2d-n1-i64x14x14-o384x14x14-{POINTWISE}-NCX-XIO-f32": ("direct", False),  # planes' rows share lines
    f"conv2d-n1-i160x7x7-o960x7x7-{POINTWISE}-NXC-XIO-f32": ("direct", False),  # 31 KB and a filter of 614
    "conv2d-n1-i256x56x56-o256x56x56-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32": ("direct", False),  # one of 2.4 MB
    "conv2d-n1-i384x14x14-o384x14x14-k3x3-s1x1-d1x1-p1x1_1x1-g384-NXC-XIO-f32": ("grouped", True),
    "conv2d-n1-i960x7x7-o960x7x7-k3x3-s1x1-d1x1-p1x1_1x1-g960-NXC-XIO-f32": ("grouped", False),  # as around it
}


@pytest.mark.parametrize("signature", ROWS)
def test_what_threads_share(signature: str) -> None:
    name, rows = ROWS[signature]
    target = Target.parse("x86-64-v4")
    definition = algorithms.get(name).define(parse_signature(signature), target)
    assert rows_first(definition.windows[0], target) == rows
