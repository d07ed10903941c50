"""What is known of CPUs by their names, and what a machine is taken for."""

from __future__ import annotations

import pytest
from tvm.target import codegen

from tvmconv.errors import TargetError
from tvmconv.targets.target import _USED, CpuTarget, Target, _closest, _llvm_features


def usable(mcpu: str) -> frozenset[str]:
    return _llvm_features(mcpu) & _USED


@pytest.mark.parametrize(
    ("shown", "vendor", "processor", "taken_for"),
    [
        ("rocketlake", "GenuineIntel", "sapphirerapids", "sapphirerapids"),  # a virtual machine's model number
        ("emeraldrapids", "GenuineIntel", "emeraldrapids", "emeraldrapids"),
        ("x86-64", "AuthenticAMD", "znver4", "znver4"),
        ("znver5", "AuthenticAMD", "znver3", "znver5"),  # features that are hidden are switched off by name
        ("x86-64-v3", "an unknown maker", "znver4", "x86-64-v3"),
    ],
)
def test_a_machine_is_taken_for_a_cpu_that_has_its_features(
    shown: str, vendor: str, processor: str, taken_for: str
) -> None:
    assert _closest(shown, usable(processor), vendor) == taken_for


@pytest.mark.parametrize(
    ("name", "rate", "tiles"),
    [("znver4", 2.0, False), ("znver5", 2.0, False), ("cooperlake", 0.5, False), ("graniterapids", 0.5, True)],
)
def test_rates_and_tiles(name: str, rate: float, tiles: bool) -> None:
    target = Target.parse(name)
    assert isinstance(target, CpuTarget) and target.dot_rate == rate
    assert ({"amx_tile", "amx_bf16"} <= set(target.features)) is tiles


@pytest.mark.parametrize("name", ["znver4", "bdver4", "arrowlake", "tigerlake", "diamondrapids", "novalake"])
def test_code_uses_no_instructions_that_a_machine_is_not_asked_for(name: str) -> None:
    left = {str(each) for each in codegen.llvm_get_cpu_features(Target.parse(name).tvm())} - _USED
    assert not {each for each in left if each.startswith(("avx", "fma", "sse"))}
    assert not left & {"avxvnni", "xop", "tbm", "egpr", "ccmp", "ndd", "nf", "ppx", "push2pop2", "zu"}
    assert "avx2" in Target.parse(name).features


def test_a_cpu_without_features_is_a_target_of_that_name() -> None:
    name = "sapphirerapids-no-amx-bf16-no-amx-tile"
    whole, target = Target.parse("sapphirerapids"), Target.parse("sapphirerapids-no-amx-tile-no-amx-bf16")
    assert target == Target.parse(name) and target.name == name
    assert set(whole.features) - set(target.features) == {"amx_bf16", "amx_tile"}
    for wrong, what in (("znver4-no-amx-tile", "znver4 has no amx-tile"), ("znver4-no-", "znver4 has no : ")):
        with pytest.raises(TargetError, match=what):
            Target.parse(wrong)
