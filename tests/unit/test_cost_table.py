"""No number about a CPU, and no question for one, stands outside the rows of costs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted([*ROOT.glob("tvmconv/algorithms/cpu/*.py"), *ROOT.glob("schedules/cpu/*.py")])
# What decides by estimates: measurements are explained in docs/cost-model.md, once.
DECIDES = (
    "cost",
    "counts",
    "tile",
    "row_tile",
    "amx_cost",
    "winograd_cost",
    "winograd_model",
    "winograd_structures",
    "tasks",
)
CPU = r"\bZen \d|Rapids|\bSkylake|\bHaswell|Graviton|Neoverse|znver\d"
# How wide vectors and how many registers there are is asked for to fill them, never to tell one CPU from another.
ASKED = r"two_of_512|\.mcpu\b|(vector_registers|vector_bits|multiply_adds)\s*(==|!=|<|>)|\bcpu_of\("
# A constant of a module that is a rate, or in cycles.
RATE = r"^[A-Z0-9_, ]*(CYCLES|LATENCY|PER_CYCLE|SPILL|RATE)\b[A-Z0-9_, ]* = "


def found(pattern: str, text: str) -> list[str]:
    return [line for line in text.splitlines() if re.search(pattern, line)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parents[1].name}-{path.stem}")
def test_no_number_about_a_cpu(path: Path) -> None:
    text = path.read_text()
    assert found(ASKED, text) == found(RATE, text) == []
    if path.stem in DECIDES:
        assert found(CPU, text) == []


def test_what_is_looked_for_is_found() -> None:
    assert found(ASKED, "if target.two_of_512:\nif target.vector_registers == 16:\ncpu_of(x)") != []
    assert found(RATE, "L3_BYTES_PER_CYCLE = 8\nTASK_CYCLES = 2000\nSPILL, LOADS = 4.0, 1.1")[1:] != []
    assert found(CPU, "on one core of a Zen 4") != []
    assert {path.stem for path in FILES} >= set(DECIDES)
