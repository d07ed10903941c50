"""CPU features as Linux reports them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tvmconv.isa import cpuinfo as linux
from tvmconv.isa import machine
from tvmconv.isa.x86 import ISA, flags

X86 = """processor\t: 0
model name\t: An x86 CPU @ 2.00GHz
flags\t\t: fpu sse2 avx2 avx512f

processor\t: 1
model name\t: Another
flags\t\t: fpu
"""


def _machine(monkeypatch: pytest.MonkeyPatch, path: Path, cpuinfo: str | None) -> None:
    if cpuinfo is not None:
        path.write_text(cpuinfo)
    monkeypatch.delenv(machine.HIDDEN, raising=False)
    monkeypatch.setattr(machine, "native", lambda: ISA)
    monkeypatch.setattr(linux, "_CPUINFO", path)
    monkeypatch.setattr(linux, "fields", linux.fields.__wrapped__)


@pytest.mark.parametrize(
    ("cpuinfo", "features", "name"),
    [
        (X86, {"fpu", "sse2", "avx2", "avx512f"}, "An x86 CPU @ 2.00GHz"),
        (None, set(), "unknown CPU"),
    ],
    ids=["x86", "no /proc"],
)
def test_features(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cpuinfo: str | None, features: set[str], name: str
) -> None:
    _machine(monkeypatch, tmp_path / "cpuinfo", cpuinfo)
    assert machine.cpu_features() == features
    assert machine.model_name() == name


def test_missing_features(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _machine(monkeypatch, tmp_path / "cpuinfo", X86)
    assert machine.missing_features(["avx2", "sse2"]) == ()
    assert machine.missing_features(["amx_tile", "avx2", "avx512_bf16"]) == ("amx_tile", "avx512_bf16")


@pytest.mark.parametrize("permitted", [True, False])
def test_tiles_are_there_only_if_linux_permits_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, permitted: bool
) -> None:
    _machine(monkeypatch, tmp_path / "cpuinfo", "flags\t: avx2 amx_tile amx_bf16\nvendor_id\t: GenuineIntel\n")
    monkeypatch.setattr(flags, "tiles_permitted", lambda: permitted)
    assert machine.missing_features(["amx_bf16", "amx_tile", "avx2"]) == (() if permitted else ("amx_bf16", "amx_tile"))
    assert machine.vendor() == "GenuineIntel"


def test_a_cpu_without_tiles_is_not_asked_for_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _machine(monkeypatch, tmp_path / "cpuinfo", X86)
    monkeypatch.setattr(flags, "tiles_permitted", lambda: pytest.fail("asked"))
    assert "avx2" in machine.cpu_features()
