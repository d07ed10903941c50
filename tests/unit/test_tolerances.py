"""Tests that compare numbers take their tolerance from `tvmconv.accuracy`: this finds those that do not."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvmconv.accuracy import UNIT, rounding, tolerance

TESTS = Path(__file__).parents[1]
# Functions that compare with a tolerance, those of other libraries' names, too, and where it stands among the arguments.
COMPARING = {"allclose", "assert_allclose", "assert_close", "isclose"}
# Those of NumPy's, PyTorch's and unittest's whose tolerance is a number of digits or of units: there is another way.
NEVER = {
    *("assert_almost_equal", "assert_approx_equal", "assert_array_almost_equal", "assertAlmostEqual"),
    *("assert_array_almost_equal_nulp", "assert_array_max_ulp"),
}
LIMITS = {"rtol", "atol", "rel_tol", "abs_tol", "tolerance"}
# Beside a literal, on its line: why it is right.
WHY = re.compile(r"# tolerance: \w+( \S+){3,}")


def offences(source: str) -> list[str]:
    """Return the lines of comparisons whose tolerance is a literal, of a variable, or a library's own."""
    tree, lines = ast.parse(source), source.splitlines()
    known = set(_from_accuracy(tree))
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if (name in COMPARING and not _is_limited(node, known)) or name in NEVER:
            text = lines[node.lineno - 1 : node.end_lineno]
            if not any(WHY.search(line) for line in text):
                found.append(f"{node.lineno}: {text[0].strip()}")
    return found


def _from_accuracy(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "tvmconv.accuracy":
            yield from (each.asname or each.name for each in node.names)


def _is_limited(call: ast.Call, known: set[str]) -> bool:
    """Return whether each tolerance of a call is computed by what `tvmconv.accuracy` has, or all of them are 0."""
    limits = [each.value for each in call.keywords if each.arg is None or each.arg in LIMITS]
    limits += call.args[2:4]
    zeros = [isinstance(each, ast.Constant) and each.value == 0 for each in limits]
    if limits and all(zeros):
        return len(limits) > 1  # the other one is the library's own
    named = [any(isinstance(node, ast.Name) and node.id in known for node in ast.walk(each)) for each in limits]
    return bool(limits) and all(one or other for one, other in zip(named, zeros, strict=True))


def test_tolerances_are_accuracys() -> None:
    found = {str(path.relative_to(TESTS)): offences(path.read_text()) for path in TESTS.rglob("*.py")}
    wrong = [f"{path}:{line}" for path, lines in sorted(found.items()) for line in lines]
    assert not wrong, "take the tolerance from tvmconv.accuracy, as near.assert_near does:\n" + "\n".join(wrong)


HEAD = "from tvmconv.accuracy import tolerance, UNIT\n"


@pytest.mark.parametrize(
    "line",
    [
        "np.testing.assert_allclose(a, b)",
        "np.testing.assert_allclose(a, b, rtol=1e-5)",
        "np.testing.assert_allclose(a, b, 1e-5, 1e-5)",
        "torch.testing.assert_close(a, b)",
        "torch.testing.assert_close(a, b, rtol=0, atol=1e-4 * abs(b).max())",
        "assert np.allclose(a, b, atol=limit)",
        "assert math.isclose(a, b, rel_tol=2.0**-20)",
        "assert torch.isclose(a, b, rtol=0).all()",
        "assert_close(a, b, tolerance=2e-5)",
        "np.testing.assert_allclose(a, b, rtol=1e-3, **tolerance(b))",
        "np.testing.assert_allclose(a, b, rtol=1e-3)  # tolerance: yes",
        "np.testing.assert_allclose(a, b, rtol=1e-3)  # noqa",
        "np.testing.assert_array_max_ulp(a, b, 1)",
        "np.testing.assert_array_almost_equal(a, b, 5)",
        "self.assertAlmostEqual(a, b)",
    ],
)
def test_a_literal_is_found(line: str) -> None:
    assert len(offences(HEAD + line)) == 1
    assert len(offences("# tolerance: of all that is here, says one line\n" + HEAD + "\n" + line)) == 1


@pytest.mark.parametrize(
    "line",
    [
        "np.testing.assert_allclose(a, b, **tolerance(b, summed=9))",
        "np.testing.assert_allclose(a, b, rtol=2 * UNIT['float32'])",
        "torch.testing.assert_close(a, b, rtol=0, atol=0)",
        "np.testing.assert_allclose(a, b, rtol=1e-3)  # tolerance: the file keeps three digits of each number",
        "np.testing.assert_array_equal(a, b)",
    ],
)
def test_what_says_its_tolerance_may_stay(line: str) -> None:
    assert offences(HEAD + line) == []


@given(
    seed=st.integers(0, 10**6),
    count=st.integers(1, 3000),
    dtype=st.sampled_from(["float64", "float32"]),
    shift=st.sampled_from([0.0, 1.0]),
)
def test_sums_in_another_order_are_within_it(seed: int, count: int, dtype: str, shift: float) -> None:
    """Of numbers of both signs and of one, one after the other and in blocks, beside the exact sum."""
    rng = np.random.default_rng(seed)
    products = ((rng.standard_normal((8, count)) + shift) * rng.standard_normal((8, 1))).astype(dtype)
    exact = np.array([np.longdouble(0) + row.astype(np.longdouble).sum() for row in products])
    for answer in (products.cumsum(-1)[:, -1], products[:, ::-1].cumsum(-1)[:, -1], products.sum(-1)):
        largest = float(np.abs(products.astype(np.float64).cumsum(-1)).max())
        most = tolerance(exact, summed=count, magnitude=largest, dtype=dtype)["atol"]
        assert np.abs(answer - exact).max() <= most


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_types_by_their_rounding(dtype: str) -> None:
    """A layer's rounding is no more than a few units of its type, also where PyTorch names the type."""
    torch = pytest.importorskip("torch")
    assert 2 * UNIT[dtype] <= rounding(dtype) <= 40 * UNIT[dtype]
    tensor = torch.tensor([1.0, -4.0, float("inf"), float("nan")]).to(getattr(torch, dtype))
    assert tolerance(tensor) == {"rtol": 0.0, "atol": 4 * rounding(dtype)}
    assert tolerance(tensor, magnitude=9.0)["atol"] == 9 * rounding(dtype)
    assert tolerance(tensor[:0])["atol"] == 0.0
