"""The machine's peak: measured once, plausible, and unknown without a C compiler."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tvmconv.isa.aarch64 import ISA as AARCH64
from tvmconv.isa.machine import cpu_features
from tvmconv.measuring import peak


def test_it_is_measured_once_a_process() -> None:
    limits = peak.measure(1)
    assert limits is not None and limits.threads == 1
    # Any x86-64 core of this century, and any yet to come.
    assert all(1e9 < flops < 1e15 for flops in (limits.flops, limits.bf16_flops) if flops is not None)
    assert all(1e8 < rate < 1e13 for rate in (limits.bandwidth, limits.cache_bandwidth))
    assert peak.measure(1) is limits
    computing = peak.arithmetic(1)
    assert computing is not None and 1e9 < computing.flops < 1e15 and peak.arithmetic(1) is computing


def test_without_a_compiler_it_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(peak, "load_library", peak.load_library.__wrapped__)
    monkeypatch.setattr(peak, "arithmetic", peak.arithmetic.__wrapped__)
    assert peak.arithmetic(1) is None and peak.measure.__wrapped__(1) is None


def test_a_share_that_no_transform_explains_is_none() -> None:
    measured = peak.Arithmetic(1e9, 4e9)
    assert (
        measured.share(3e9, "f32") == 3 and measured.share(2e9, "bf16") == 0.5 and measured.share(28e9, "f32") is None
    )


def test_integers_have_a_peak_of_their_own() -> None:
    measured = peak.Arithmetic(1e9, None, integer_flops=4e9)
    assert measured.share(3e9, "u8s8u8") == 0.75 and measured.share(3e9, "f16") == 3
    assert peak.Arithmetic(1e9, None).share(3e9, "s8s8s32") is None and measured.share(3e9, "u8s16s32") is None
    timed = peak.arithmetic(1)
    known = {"avx512_vnni", "avx_vnni", "dotprod"} & cpu_features()
    assert timed is not None and (timed.integer_flops is not None or not known)


COMPILER = AARCH64.cross_compilers[0]


@pytest.mark.skipif(shutil.which(COMPILER) is None, reason=f"no {COMPILER}")
def test_on_arm_nothing_but_multiply_adds_is_timed(tmp_path: Path) -> None:
    command = [
        COMPILER,
        *peak.FLAGS,
        f"{AARCH64.cpu_flag}neoverse-v1",
        f"-I{AARCH64.native}",
        "-S",
        peak.SOURCE,
        "-o",
        tmp_path / "peak.s",
    ]
    subprocess.run(command, check=True)
    loops = re.findall(
        r"^\.L\w+:\n((?:\t[^.].*\n)+?)\tb(?:ne|\.any)\t", (tmp_path / "peak.s").read_text(), re.MULTILINE
    )
    mnemonics = [[line.split()[0] for line in loop.splitlines()] for loop in loops]
    for name in ("fmla", "bfdot", "sdot"):
        (loop,) = [each for each in mnemonics if name in each]
        assert loop.count(name) == 20 and len(loop) <= 22  # and the counter


def test_a_cache_slower_than_memory_is_measured_again() -> None:
    rates = [1e10, 2e10, 9e10]
    assert peak.agree(lambda: 5e10, lambda: rates.pop(0)) == (5e10, 9e10) and not rates
    assert peak.agree(lambda: 5e10, lambda: 1e10) == (5e10, 5e10)
    assert peak.agree(lambda: 5e10, lambda: 6e10) == (5e10, 6e10)
