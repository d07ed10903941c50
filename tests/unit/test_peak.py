"""The machine's peak: measured once, plausible, and unknown without a C compiler."""

from __future__ import annotations

import shutil

import pytest

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
