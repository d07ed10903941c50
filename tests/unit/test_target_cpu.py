"""Facts about CPUs by their names, and the CPU that a machine is taken for."""

from __future__ import annotations

import pickle
import sys

import pytest
from tvm.target import codegen

from tvmconv.errors import TargetError, ToolchainError
from tvmconv.isa import ISAS, isa_of, native
from tvmconv.isa.aarch64 import ISA as AARCH64
from tvmconv.isa.aarch64.hwcap import decode
from tvmconv.isa.x86 import ISA as X86
from tvmconv.support import toolchain
from tvmconv.support.toolchain import find_compiler
from tvmconv.targets import target as targets
from tvmconv.targets.llvm import list_features
from tvmconv.targets.target import CpuTarget, Target, _closest


def usable(mcpu: str) -> frozenset[str]:
    return list_features(mcpu, X86) & X86.used


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
    assert _closest(shown, usable(processor), vendor, X86) == taken_for


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
    left = {str(each) for each in codegen.llvm_get_cpu_features(Target.parse(name).tvm())} - X86.used
    assert not {each for each in left if each.startswith(("avx", "fma", "sse"))}
    assert not left & {"avxvnni", "xop", "tbm", "egpr", "ccmp", "ndd", "nf", "ppx", "push2pop2", "zu"}
    assert "avx2" in Target.parse(name).features


def test_a_cpu_without_features_is_a_target_of_that_name() -> None:
    name = "sapphirerapids-no-amx-bf16-no-amx-tile"
    whole, target = Target.parse("sapphirerapids"), Target.parse("sapphirerapids-no-amx-tile-no-amx-bf16")
    assert target == Target.parse(name) and target.name == name
    assert set(whole.features) - set(target.features) == {"amx_bf16", "amx_int8", "amx_tile"}
    for wrong, what in (("znver4-no-amx-tile", "znver4 has no amx-tile"), ("znver4-no-", "znver4 has no ; ")):
        with pytest.raises(TargetError, match=what):
            Target.parse(wrong)


def test_a_host_that_lacks_many_features_has_a_short_name() -> None:
    """Its name stands in names of files: an Emerald Rapids as x86-64-v3 had one of 290 bytes."""
    usable = Target.parse("x86-64-v3").features
    missing = frozenset(each for each in X86.used if X86.linux_name(each) not in usable)
    whole = targets._without("emeraldrapids", missing, X86)
    least = targets._without("emeraldrapids", targets._least_missing(whole), X86)
    assert len(least.name) < 100 < targets._LONGEST < len(whole.name)
    assert least.features == whole.features


ARM = ("neoverse-n1", "neoverse-v1", "neoverse-v2", "grace", "ampere1", "cortex-a76", "cortex-a53", "apple-m1")


@pytest.mark.parametrize("name", [*ARM, "neoverse-v3", "cortex-x925", "a64fx", "olympus", "fujitsu-monaka", "apple-m5"])
def test_arm_code_uses_no_instructions_that_a_machine_is_not_asked_for(name: str) -> None:
    target = Target.parse(name)
    assert isinstance(target, CpuTarget) and target.isa is AARCH64
    assert (target.vector_bits, target.vector_registers) == (128, 32)
    left = {str(each) for each in codegen.llvm_get_cpu_features(target.tvm())} - AARCH64.used
    # What has no instructions for numbers: privileged, cryptographic, tracing, and tuning.
    assert not {each for each in left if each.startswith(("sve", "sme", "fp8", "fp16", "sha3", "rcpc", "lse"))}
    assert not left & {"rdm", "complxnum", "jsconv", "fptoint", "cssc", "mops", "faminmax", "lut"}


def test_arm_features_by_linux_names() -> None:
    assert Target.parse("cortex-a53").features == ("asimd",)
    assert Target.parse("neoverse-n1").features == ("asimd", "asimddp", "asimdhp")
    assert Target.parse("neoverse-v1").features == ("asimd", "asimddp", "asimdhp", "bf16", "i8mm")
    assert Target.parse("neoverse-v1-no-bf16").features == ("asimd", "asimddp", "asimdhp", "i8mm")
    with pytest.raises(TargetError, match="cortex-a53 has no bf16; it can be without neon"):
        Target.parse("cortex-a53-no-bf16")
    with pytest.raises(TargetError, match="has no NEON"):
        Target.parse("cortex-a53-no-neon")
    with pytest.raises(TargetError, match="x86-64, aarch64, WebAssembly; near it: neoverse-"):
        Target.parse("neoverse-n9")
    for name in ("aarch64", "x86_64", "wasm64", "windows:neoverse-n1", "plan9:x86-64-v3"):
        with pytest.raises(
            TargetError, match=r"allowed under Linux: host; on x86-64 .* for other systems .*windows:x86-64"
        ):
            Target.parse(name)


def test_a_cpu_on_another_system_is_another_target() -> None:
    linux, windows = Target.parse("znver4"), Target.parse("windows:znver4")
    assert set(windows.features) - set(linux.features) == {"windows"} and windows.tuned_as == linux.name
    assert (windows.folder, windows.library_suffix) == ("windows-znver4", ".dll")
    assert isa_of(windows.features) is not X86 and isa_of(linux.features) is X86
    for name in ("windows", "x86_64-windows", "x86_64-pc-windows-gnu", "x86_64-pc-windows-gnu:x86-64-v3"):
        assert Target.parse(name).name == "windows:x86-64-v3"
    assert not {"amx_tile", "amx_bf16"} & set(Target.parse("windows:sapphirerapids").features)
    assert Target.parse("windows:znver4-no-gfni").name == "windows:znver4-no-gfni"


def test_a_system_may_have_several_instruction_sets() -> None:
    for name in ("android", "aarch64-android", "aarch64-linux-android24:cortex-a53"):
        assert Target.parse(name).name == "android:cortex-a53"
    for name in ("x86_64-android", "x86_64-android:x86-64-v3", "android:x86-64-v3"):
        assert Target.parse(name).name == "android:x86-64-v3"
    assert isa_of(Target.parse("android:znver4").features) is not isa_of(Target.parse("android").features)
    with pytest.raises(TargetError, match="LLVM does not know for x86-64 on Android"):
        Target.parse("x86_64-android:cortex-a53")


def test_a_missing_cross_compiler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    foreign = next(isa for isa in ISAS if isa is not native() and isa.cross_compilers)
    monkeypatch.setattr(toolchain, "find_spec", lambda name: None)
    with pytest.raises(ToolchainError, match=f"no C compiler for {foreign.name}: .*apt install gcc-.* pip install zig"):
        find_compiler(foreign)
    monkeypatch.setattr(toolchain, "find_spec", lambda name: name == "ziglang")
    assert find_compiler(foreign) == (sys.executable, "-m", "ziglang", "cc", "-target", f"{foreign.triple}.2.17")
    with pytest.raises(ToolchainError, match="there is no C compiler: none of cc"):
        find_compiler()


def test_bits_of_auxiliary_vectors() -> None:
    assert {"asimd", "asimdhp", "sve"} <= decode(0xEFFFFFFF, 0x0) and "bf16" not in decode(0xEFFFFFFF, 0x0)
    assert decode(0x0, 1 << 14) == {"bf16"}
    assert decode(0xFF, 0x0) == {"fp", "asimd"}


def test_features_tell_the_instruction_set() -> None:
    assert isa_of(Target.parse("x86-64-v3").features) is X86 and isa_of(Target.parse("neoverse-n1").features) is AARCH64
    assert isa_of(()) is None and isa_of(("avx2",)) is None
    assert native() in ISAS and pickle.loads(pickle.dumps(AARCH64)) is AARCH64
