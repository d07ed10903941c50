"""The self-test of an exported library, `smoke.c`: expected outputs for integers that the C program draws by the same generator.

Sums of such integers are exact in any order (`tvmconv.fills`), so for most kernels a checksum of all bits is compared. Kernels
with a transform or an approximated step may differ between CPUs: for these, samples are compared by their relative L2 error.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import reference
from ..dtypes import ROWS
from ..epilogue import is_exact
from ..fills import ADDED_RANGE, FACTORS, exact_ranges, numpy_dtype
from ..problem import Problem
from ..runtime.emulation import kernel_here
from .archive import NATIVE
from .header import join_rows, quote
from .plan import Function, Plan

SAMPLES = 16
# Factor on the tolerance: the error of a few samples can exceed that of the whole output.
_MARGIN = 4.0
_DENSE = 1 << 24
# Tolerance for approximated steps whose result is rounded to 8 bits: one step of the integer.
_STEP = 2.0**-7
# Seeds of the drawn arrays, as in native/smoke.c.
_SEEDS = {name: seed for seed, name in enumerate(("data", "filter", "bias", "scale", "slope", "residual"), 1)}

_Bits = npt.NDArray[Any]


def answers(plan: Plan) -> str:
    """Return ``smoke-answers.h``: each kernel's outputs for the integers that ``smoke.c`` draws."""
    kernels = [_row(each.signature, _kernel_answer(plan, each)) for each in plan.functions]
    return f"""\
/* Outputs of {plan.name} for the integers that smoke.c draws, computed by tvmconv at export. */
enum {{ SAMPLES = {SAMPLES}, ADDED_RANGE = {ADDED_RANGE}, FACTORS = {len(FACTORS)} }};
static const float factors[] = {{{", ".join(f"{each!r}f" for each in FACTORS)}}};
struct answer {{
  const char *name;
  int data_range, filter_range, dense; /* dense: of 2^24 */
  int data_middle, filter_middle;
  int exact;
  unsigned long long checksum;
  double error;
  double samples[SAMPLES];
}};
static const struct answer kernel_answers[] = {{
    {join_rows(kernels)}}};
"""


def program(plan: Plan) -> str:
    """Return the text of ``smoke.c``."""
    return (NATIVE / "smoke.c").read_text().replace("tvmconv_name", plan.name)


def draw(problem: Problem, name: str, shape: tuple[int, ...], dtype: str) -> _Bits:
    """Return the array of an input: element i depends only on i, the problem and the input's name."""
    data_range, filter_range, keep = exact_ranges(problem)
    bits = _mix(np.arange(prod(shape), dtype=np.uint64) + (np.uint64(_SEEDS[name]) << np.uint64(40)))
    upper = (bits >> np.uint64(33)).astype(np.int64)
    if name in ("scale", "slope"):
        values = np.asarray(FACTORS)[upper % len(FACTORS)]
    else:
        largest = {"data": data_range, "filter": filter_range}.get(name, ADDED_RANGE)
        values = (upper % (2 * largest + 1) - largest).astype(np.float64)
    if name == "data":
        values[(bits & np.uint64(_DENSE - 1)).astype(np.int64) >= _dense(keep)] = 0
    values += _middles(problem).get(name, 0)
    return values.reshape(shape).astype(numpy_dtype(dtype))


def _middles(problem: Problem) -> dict[str, int]:
    """Return the centres of the ranges of data and filter: their zero points, clamped so that the ranges fit the types."""
    data_range, filter_range, _ = exact_ranges(problem)

    def middle(dtype: str, zero: int, largest: int) -> int:
        least, greatest = ROWS[dtype].range or (zero - largest, zero + largest)
        return min(max(zero, least + largest), greatest - largest)

    return {
        "data": middle(problem.types.data, problem.zero_point, data_range),
        "filter": middle(problem.types.filter, problem.filter_zero_point, filter_range),
    }


def _dense(keep: float) -> int:
    return min(int(keep * _DENSE), _DENSE)


def _mix(bits: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Apply splitmix64's output function to each number."""
    with np.errstate(over="ignore"):
        bits = (bits + np.uint64(0x9E3779B97F4A7C15)) & np.uint64(0xFFFFFFFFFFFFFFFF)
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return bits ^ (bits >> np.uint64(31))


def _checksum(output: _Bits) -> int:
    """Return a checksum of an output's bits; -0 counts as +0."""
    flat = (output.ravel() + output.dtype.type(0)).view(f"u{output.itemsize}").astype(np.uint64)
    places = np.arange(flat.size, dtype=np.uint64) << np.uint64(32)
    with np.errstate(over="ignore"):
        return int(_mix(flat ^ places).sum(dtype=np.uint64))


def _kernel_answer(plan: Plan, function: Function) -> tuple[object, ...]:
    problem = function.problem
    arrays = {name: draw(problem, name, shape, dtype) for name, (shape, dtype) in problem.operands.items()}
    # The best variant that runs here, natively or under an emulator.
    found = next(filter(None, (kernel_here(plan.bundle, each.entry) for each in function.variants)), None)
    if found is None:
        output = reference.compute(problem, **arrays).astype(numpy_dtype(problem.types.output))
    else:
        output = np.asarray(found(**arrays))
    transforms = any(each.entry.numerical_class != "exact" for each in function.variants)
    row = ROWS[problem.types.output]
    error = row.transform_error if transforms else 0.0
    if not is_exact(problem.epilogue):
        error = max(error, row.approximated_error or _STEP)
    return _answer(problem, output, error)


def _answer(problem: Problem, output: _Bits, error: float) -> tuple[object, ...]:
    data_range, filter_range, keep = exact_ranges(problem)
    places = [at * output.size // SAMPLES for at in range(SAMPLES)] if output.size else []
    samples = [float(output.ravel()[at]) for at in places]
    return (
        data_range,
        filter_range,
        _dense(keep),
        *_middles(problem).values(),
        int(error == 0),
        _checksum(output),
        _MARGIN * error,
        samples,
    )


def _row(name: str, answer: Sequence[Any]) -> str:
    *numbers, checksum, error, samples = answer
    texts = ", ".join(map(repr, samples)) or "0"
    return f"{{{quote(name)}, {', '.join(map(str, numbers))}, {checksum}ULL, {error!r}, {{{texts}}}}}"
