"""No number about a CPU, and no question for one, stands outside the rows of costs (and `targets/cpus.py`, of caches)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted([*ROOT.glob("tvmconv/algorithms/cpu/**/*.py"), *ROOT.glob("schedules/cpu/**/*.py")])
# What decides by estimates: measurements are explained in docs/cost-model.md, once.
DECIDES = (
    "cost",
    "counts",
    "tile",
    "row_tile",
    "amx_cost",
    "winograd_cost",
    "winograd_plan",
    "winograd_structures",
    "winograd_halves_cost",
    "winograd_halves_window",
    "tasks",
)
# Others whose functions have no number without a name, beside measurements that explain them.
ALSO = ("direct_plan", "planar_plan", "inner", "kn2row", "mmla", "phased", "grouped_plan")
CPU = r"\bZen\b|Rapids|\bSkylake|\bHaswell|Graviton|Neoverse|znver\d"
# How wide vectors and how many registers there are is asked for to fill them, never to tell one CPU from another.
ASKED = r"two_of_512|\.mcpu\b|(vector_registers|vector_bits|multiply_adds)\s*(==|!=|<|>)|\bcpu_of\("
# A constant of a module that is a rate, or in cycles.
RATE = r"^[A-Z0-9_, ]*(CYCLES|LATENCY|PER_CYCLE|SPILL|RATE)\b[A-Z0-9_, ]* = "


# Factors: what is read and written, bytes of an f32, quarters of a cache. A larger number in an estimate is a constant with a name.
FACTORS = (0, 0.5, 1, 2, 3, 4)
# Calls whose numbers say how many ways are tried.
TRIED = ("divisors", "range")
# Why a constant is not about a CPU, which would have it in its row.
REASONS = {
    "the problem: how often what is read, copied or transformed once is used, or how much of a vector is empty": """
        direct.LEAST_PER_GROUP direct.LEAST_OF_QUADS filter_pieces.LEAST_PACKED_PIXELS direct.LEAST_STREAMED_PRODUCTS
        direct.MOST_TASK_PIXELS
        direct.LEAST_CHANNELS_OF_PARTS direct_plan.MOST_COPIED_PRODUCTS direct_plan.LEAST_ROWS filter_parts.LEAST_ROWS_OF_SHARE
        inner.LEAST_PRODUCTS
        inner.MOST_PIXELS mmla.LEAST_CHANNELS paired_taps.LEAST_USED plain.LEAST_TAPS plain.LEAST_PRODUCTS
        planar_plan.LEAST_SHARING tasks.EXPANSION window.FEW_PIXELS window.STREAMED_PIXELS winograd_plan.MOST_PREFETCHED
        winograd_plan.HIDDEN winograd_plan.HIDING_TILES
        winograd_cost.MOST_PIECES amx.FEWEST_OUTPUTS winograd_halves.FEWEST_OUTPUTS""",
    "the code: what is unrolled, and what LLVM makes of it": """
        filter_parts.MOST_SUMS filter_parts.MOST_TILES_OF_PAIRS grouped_plan.MAX_UNROLLED grouped_plan.MAX_UNROLLED_ROW
        grouped_plan.LEAST_STEPS inner.MOST_OUTPUTS kn2row.MAX_GATHERED plain.MOST_PIXELS plain.MOST_CHANNELS plain.COLUMNS
        reduced.TWELVE reduced.LEAST_STEPS reduced.LONG_SUM row_tile.MAX_UNROLLED row_tile.SHORT_TILE
        row_window.MOST_CHANNELS tap_pairs.LEAST_UNROLLED row_window.MOST_ROW_BYTES winograd.TRANSPOSED winograd_plan.UNROLL steps.ROWS
        winograd_cost.MOST_HELD_TAPS winograd_tiles.MOST_PARTS window.FEW_PLANES window.TOGETHER amx_cost.BLOCKS""",
    "tasks: how many, so that two threads to sixty-four find a share, and how large": """
        cost.THREADS cost.MANY cost.WORTH cost.LEAST_TASK tasks.FEW_AGAIN counts.TASK_ROWS direct_plan.MOST_CHUNKS filter_parts.MOST_SHARES grouped_plan.LEAST_BANDS grouped_plan.LEAST_CHUNK inner.MOST_CHUNKS winograd.TILES_OF_FILTER
        kn2row.MOST_CHUNKS mmla.MOST_CHUNKS planar_plan.COPIED_PLANES tasks.TASKS tile.LONG_ROW amx_cost.MOST_CHUNKS col2im.MOST_CHUNKS winograd_plan.STRIP_TILES""",
    "what an estimate must gain, for it is no more exact": "direct.LEAST_TURNED tile.LEAST_GAIN",
    "how many ways are tried": "tile.MORE_VECTORS winograd_plan.MOST_PLANS",
    "part of a cache, whose size is the CPU's": "amx_cost.L1_KEPT filter_pieces.FAR_APART_BYTES filter_pieces.FEW_ROWS mmla.FAR_APART",
    "a format, a transform or an instruction": """
        amx_window.PAIR_BYTES counts.ACROSS_LANES steps.LINE_FLOATS winograd_halves_window.HALVES winograd.LINE winograd.TWO_LINES
        winograd_transforms.PAIRS whole_transforms.PAIRS whole_transforms.SCALES whole_transforms.LAST whole_transforms.DATA_SUMS
        winograd_integers.PAIR winograd_integers._MOST
        tap_pairs.UNPACKED""",
    "the fit of rows itself": "cold.OUTLIER fit.ALIKE fit.STAY fit.OUTLIER fit.LEAST fit.NEAR fit.ROUNDS",
}


def found(pattern: str, text: str) -> list[str]:
    return [line for line in text.splitlines() if re.search(pattern, line)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parents[1].name}-{path.stem}")
def test_no_number_about_a_cpu(path: Path) -> None:
    text = path.read_text()
    assert found(ASKED, text) == found(RATE, text) == []


def test_no_cpu_has_a_name_beside_the_rows() -> None:
    """Measurements are in benchmarks/results/plans.md."""
    files = [
        path
        for name in ("tvmconv/algorithms", "tvmconv/lowering/cpu", "schedules")
        for path in (ROOT / name).rglob("*.py")
    ]
    assert FILES[0] in files and [path for path in files if found(CPU, path.read_text())] == []


def numbers(node: ast.AST) -> Iterator[ast.Constant]:
    for each in ast.walk(node):
        if isinstance(each, ast.Constant) and isinstance(each.value, (int, float)) and not isinstance(each.value, bool):
            yield each


def constants(text: str) -> Iterator[str]:
    """Yield the constants of a module whose values have numbers but 0 and 1."""
    for each in ast.parse(text).body:
        if isinstance(each, (ast.Assign, ast.AnnAssign)) and each.value is not None:
            targets = each.targets if isinstance(each, ast.Assign) else [each.target]
            if any(number.value not in (0, 1) for number in numbers(each.value)):
                yield from (name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))


def thresholds(text: str) -> list[float]:
    """Return the numbers in a module's functions that are neither factors nor say how many ways are tried."""
    tree = ast.parse(text)
    tried: set[ast.Constant] = set()
    for node in ast.walk(tree):
        called = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
        if called in TRIED or isinstance(node, ast.Slice):
            tried.update(numbers(node))
    functions = [each for each in tree.body if isinstance(each, (ast.FunctionDef, ast.ClassDef))]
    every = (number for each in functions for number in numbers(each) if number not in tried)
    return [number.value for number in every if number.value not in FACTORS]


def test_every_constant_says_why_it_is_not_a_coefficient() -> None:
    there = {f"{path.stem}.{name}" for path in FILES for name in constants(path.read_text())}
    reasons = [name for names in REASONS.values() for name in names.split()]
    assert sorted(reasons) == sorted(there)


@pytest.mark.parametrize("path", [path for path in FILES if path.stem in (*DECIDES, *ALSO)], ids=lambda path: path.stem)
def test_estimates_have_no_threshold_without_a_name(path: Path) -> None:
    assert thresholds(path.read_text()) == []


def test_thresholds_and_constants_are_found() -> None:
    text = "A, B = 1, 16\nC: int = 2 * KIB\nD = 1\ndef f(x):\n    return x[:5] if x > 40 * 1024 else divisors(x, 16)\n"
    assert (thresholds(text), sorted(constants(text))) == ([40, 1024], ["A", "B", "C"])


def test_what_is_looked_for_is_found() -> None:
    assert found(ASKED, "if target.two_of_512:\nif target.vector_registers == 16:\ncpu_of(x)") != []
    assert found(RATE, "L3_BYTES_PER_CYCLE = 8\nTASK_CYCLES = 2000\nSPILL, LOADS = 4.0, 1.1")[1:] != []
    assert found(CPU, "on one core of a Zen 4") != []
    assert {path.stem for path in FILES} >= set(DECIDES)
