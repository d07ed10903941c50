"""Kernels for x86-64-v3 on an emulated CPU that has no more instructions: one too many ends in SIGILL here, not at a user's."""

from __future__ import annotations

from pathlib import Path

import pytest
from emulated import cpu_of, haswell, needs_haswell
from emulated_kernels import check_all
from test_compiler import SPACES
from test_winograd import EDGES
from toys import small_problem

from tvmconv.algorithms import table as algorithms
from tvmconv.errors import VerificationError
from tvmconv.lowering.compiler import Choice
from tvmconv.problem import Problem
from tvmconv.signature import parse_signature
from tvmconv.targets.target import CpuTarget

pytestmark = needs_haswell
V3 = cpu_of("x86-64-v3")
PROBLEMS = [*map(parse_signature, [*SPACES, *EDGES]), small_problem(in_channels=0, bias=True)]
# What no problem is computed by on it: bf16's dot products and matrices, tiles; integers are in test_integers.py.
LACKING = {
    *("quads", "winograd2_integers", "winograd4_integers", "tap_pairs"),
    *("kn2row_dot", "grouped_dot", "dot", "mmla", "amx", "amx_halves", "amx_exact"),
    *("phased_dot", "winograd2_halves", "inner_dot", "col2im_dot"),
}
# Problems of each algorithm, the quickest of each type and each operator.
MOST = 6


def covered(name: str, target: CpuTarget = V3) -> list[Problem]:
    """Return problems that an algorithm computes, which take the emulator least."""
    found = [each for each in PROBLEMS if algorithms.get(name).covers(each, target) is None]
    kinds: dict[tuple[str, str, str], Problem] = {}
    for each in sorted(found, key=lambda problem: problem.flops):
        kinds.setdefault((each.dtype, each.op, each.data_format), each)
    return list(kinds.values())[:MOST]


NAMES = [each.name for each in algorithms.ALGORITHMS if each.kind == "cpu" and covered(each.name)]


def test_every_algorithm_that_covers_it_is_here() -> None:
    assert {each.name for each in algorithms.ALGORITHMS if each.kind == "cpu"} - LACKING == {*NAMES}


# All of them are run by .ci/full.
@pytest.mark.parametrize("name", [pytest.param(each, marks=[pytest.mark.slow] * (each != "direct")) for each in NAMES])
def test_no_instruction_is_beyond_it(name: str, tmp_path: Path) -> None:
    """As they ship, with plain filters and prepacked ones."""
    problems = covered(name)[: 2 if name == "direct" else MOST]
    tried = [(each, Choice(name), packed) for each in problems for packed in (False, True)]
    check_all(tried, V3, haswell(), tmp_path, quick=False)


def test_one_beyond_it_is_found(tmp_path: Path) -> None:
    """A kernel for x86-64-v4."""
    problem = small_problem(in_channels=16, out_channels=32)
    with pytest.raises(VerificationError, match=r"(?s)under qemu-x86_64 -cpu Haswell: .*Illegal instruction"):
        check_all([(problem, Choice("direct"), False)], cpu_of("x86-64-v4"), haswell(), tmp_path, quick=False)
