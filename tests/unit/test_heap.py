"""What a process has freed goes back to the system."""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path

import pytest

from tvmconv.support.heap import give_back

BLOCK, COUNT = 32 * 1024, 2000  # smaller than what malloc asks the system for by itself


def resident() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmRSS")).split()[1])


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="the C library keeps what is freed")
def test_free_pages_between_used_blocks_are_given_back() -> None:
    cycle: list[object] = [bytearray(BLOCK) for _ in range(COUNT)]
    cycle.append(cycle)
    last = bytearray(BLOCK)  # the end of the heap is used
    gc.disable()
    try:
        del cycle
        before = resident()
        give_back()
    finally:
        gc.enable()
    assert before - resident() > BLOCK * COUNT / 2 and len(last) == BLOCK
