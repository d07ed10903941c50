"""The schedules for GPUs of one problem of each kind, as text: a change of a definition or a space shows as a diff."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tvmconv.algorithms.table import ALGORITHMS
from tvmconv.lowering.compiler import Choice, schedule
from tvmconv.signature import parse_signature
from tvmconv.targets.cuda import CudaTarget

FILES = Path(__file__).parent / "files"
SM_80 = CudaTarget.parse("cuda:sm_80")
CASES = {
    "tensorcore": "conv2d-n1-i64x56x56-o64x56x56-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f16-bias",
    "tensorcore_split_depth": "conv2d-n1-i256x7x7-o64x7x7-k3x3-s1x1-d1x1-p1x1_1x1-g1-NCX-OIX-bf16",
    "cuda_fma": "conv2d-n1-i64x56x56-o64x56x56-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32-bias",
    "cuda_fma_first_layer": "conv2d-n1-i3x112x112-o32x56x56-k7x7-s2x2-d1x1-p3x3_2x2-g1-NCX-OIX-f32",
    "cuda_fma_backprop": "backprop2d-n1-i64x14x14-o32x28x28-k4x4-s2x2-d1x1-p1x1_1x1-g1-NXC-XIO-f32",
    "cuda_direct_depthwise": "conv2d-n4-i96x56x56-o96x56x56-k3x3-s1x1-d1x1-p1x1_1x1-g96-NXC-XIO-f16",
    "cuda_direct_small_groups": "conv2d-n1-i64x28x28-o64x28x28-k3x3-s1x1-d1x1-p1x1_1x1-g32-NCX-OIX-f32-bias",
    "cuda_constant": "conv2d-n1-i0x4x4-o8x4x4-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32-bias",
}


@pytest.mark.parametrize("name", CASES)
def test_schedule(name: str, request: pytest.FixtureRequest) -> None:
    problem = parse_signature(CASES[name])
    choice = Choice(max((each.name for each in ALGORITHMS if name.startswith(each.name)), key=len))
    script = schedule(problem, SM_80, choice)[1].mod.script()
    # Colours are for terminals.
    text = f"# {CASES[name]} for {SM_80.name}\n" + re.sub(r"\x1b\[[0-9;]*m", "", script) + "\n"
    path = FILES / f"{name}.{SM_80.folder}.txt"
    if request.config.getoption("--update-golden"):
        path.write_text(text)
    assert path.exists(), f"{path.name} is missing; write it with: make golden"
    assert text == path.read_text(), f"{path.name} differs; if the change is meant: make golden"
