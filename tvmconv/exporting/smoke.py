"""The test that goes with an exported library: integers that a program in C draws too, and the answers to them.

Sums of such integers are exact in any order (`tvmconv.fills`), so of most kernels a checksum of all bits is compared. Kernels that
transform numbers, or approximate a step, and layers, whose filters are a model's, may differ between CPUs: of these some outputs are
compared by their relative L2 error.
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
from ..runtime.arrays import KERNEL_TYPES
from ..runtime.emulation import kernel_here
from ..runtime.kernel import Kernel
from .archive import NATIVE
from .filters import Blobs
from .header import join_rows, quote
from .plan import Function, FunctionVariant, Layer, Plan

SAMPLES = 16
# Samples may err more than all outputs together.
_MARGIN = 4.0
_DENSE = 1 << 24
# Seeds of the arrays that are drawn, as in native/smoke.c.
_SEEDS = {name: seed for seed, name in enumerate(("data", "filter", "bias", "scale", "slope", "residual"), 1)}

_Bits = npt.NDArray[Any]


def answers(plan: Plan, blobs: Blobs) -> str:
    """Return ``smoke-answers.h``: what each kernel and each layer gives for the integers that ``smoke.c`` draws."""
    kernels = [_row(each.signature, _kernel_answer(plan, each)) for each in plan.functions]
    layers = [_row(f"{plan.name}_{each.name}", _layer_answer(plan, each, blobs)) for each in plan.layers]
    return f"""\
/* What {plan.name} gives for the integers that smoke.c draws, as tvmconv computed it when it wrote this. */
enum {{ SAMPLES = {SAMPLES}, ADDED_RANGE = {ADDED_RANGE}, FACTORS = {len(FACTORS)} }};
static const float factors[] = {{{", ".join(f"{each!r}f" for each in FACTORS)}}};
struct answer {{
  const char *name;
  int data_range, filter_range, dense; /* dense: of 2^24 */
  int exact;
  unsigned long long checksum;
  double error; /* below 0: not known */
  double samples[SAMPLES];
}};
static const struct answer kernel_answers[] = {{
    {join_rows(kernels)}}};
static const struct answer layer_answers[] = {{
    {join_rows([*layers, _row("", _unknown())])}}};
"""


def program(plan: Plan, filters_in_file: bool) -> str:
    """Return the text of ``smoke.c``."""
    text, layers, trying = (NATIVE / "smoke.c").read_text(), "", ""
    if plan.layers:
        layers = (NATIVE / "smoke_layers.c").read_text()
        trying = """  for (int i = 0; i < tvmconv_name_layer_count; ++i) bad += try_layer(tvmconv_name_layers[i], &layer_answers[i]);
  printf("%d layers of models; ", tvmconv_name_layer_count);
"""
    if filters_in_file:
        opening = f'  if (failed("{plan.name}.filters", "open", tvmconv_name_open_filters(count > 1 ? arguments[1] : "{plan.name}.filters"), 0))\n    return 1;\n'
        trying = opening + trying
    return (
        text.replace("/* LAYERS */\n", layers)
        .replace("  /* TRY LAYERS */\n", trying)
        .replace("tvmconv_name", plan.name)
    )


def draw(problem: Problem, name: str, shape: tuple[int, ...], dtype: str) -> _Bits:
    """Return the array of an input: element i is a function of i and the input's name alone."""
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
    return values.reshape(shape).astype(numpy_dtype(dtype))


def _dense(keep: float) -> int:
    return min(int(keep * _DENSE), _DENSE)


def _mix(bits: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return splitmix64's output function of each number."""
    with np.errstate(over="ignore"):
        bits = (bits + np.uint64(0x9E3779B97F4A7C15)) & np.uint64(0xFFFFFFFFFFFFFFFF)
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return bits ^ (bits >> np.uint64(31))


def _checksum(output: _Bits) -> int:
    """Return a checksum of an output's bits, in which both zeros are one."""
    flat = (output.ravel() + output.dtype.type(0)).view(f"u{output.itemsize}").astype(np.uint64)
    places = np.arange(flat.size, dtype=np.uint64) << np.uint64(32)
    with np.errstate(over="ignore"):
        return int(_mix(flat ^ places).sum(dtype=np.uint64))


def _kernel_answer(plan: Plan, function: Function) -> tuple[object, ...]:
    problem = function.problem
    arrays = {name: draw(problem, name, shape, dtype) for name, (shape, dtype) in problem.operands.items()}
    found = _runnable(plan, function)
    if found is None:
        output = reference.compute(problem, **arrays).astype(numpy_dtype(problem.dtype))
    else:
        output = np.asarray(found[1](**arrays))
    transforms = any(each.entry.numerical_class != "exact" for each in function.variants)
    error = ROWS[problem.dtype].transform_error if transforms else 0.0
    if not is_exact(problem.epilogue):
        error = max(error, ROWS[problem.dtype].approximated_error)
    return _answer(problem, output, error)


def _layer_answer(plan: Plan, layer: Layer, blobs: Blobs) -> tuple[object, ...]:
    """Return a layer's answer; unknown where the bundle has its filter for no variant that runs here, nor as it is."""
    problem, node = layer.function.problem, layer.node
    operands = problem.operands
    arrays: dict[str, Any] = {"data": draw(problem, "data", *operands["data"])}
    if node.residual is not None:
        arrays["residual"] = draw(problem, "residual", *operands["residual"])
    for name, blob in node.vectors.items():
        shape, dtype = operands[name]
        arrays[name] = np.frombuffer(blobs.content(blob), numpy_dtype(dtype)).reshape(shape)
    variant, kernel = _runnable(plan, layer.function) or (None, None)
    packed = layer.packed(variant) if variant is not None else None
    if kernel is not None and packed is not None:
        prepacked = kernel.packed_from(np.frombuffer(blobs.content(packed), np.uint8))
        output = np.asarray(kernel(arrays.pop("data"), prepacked, **arrays))
    elif layer.plain is not None:
        bits = np.frombuffer(blobs.content(layer.plain), KERNEL_TYPES[problem.dtype])
        plain = bits.view(numpy_dtype(problem.dtype)).reshape(problem.filter_shape)
        output = reference.compute(problem, filter=plain, **arrays).astype(numpy_dtype(problem.dtype))
    else:
        return _unknown()
    transforms = any(each.entry.numerical_class != "exact" for each in layer.function.variants)
    error = max(ROWS[problem.dtype].layer_error, ROWS[problem.dtype].transform_error if transforms else 0.0)
    return _answer(problem, output, error)


def _runnable(plan: Plan, function: Function) -> tuple[FunctionVariant, Kernel] | None:
    """Return the best variant that runs here, itself or under an emulator, and what runs it."""
    for variant in function.variants:
        kernel = kernel_here(plan.bundle, variant.entry)
        if kernel is not None:
            return variant, kernel
    return None


def _answer(problem: Problem, output: _Bits, error: float) -> tuple[object, ...]:
    data_range, filter_range, keep = exact_ranges(problem)
    places = [at * output.size // SAMPLES for at in range(SAMPLES)] if output.size else []
    samples = [float(output.ravel()[at]) for at in places]
    return (data_range, filter_range, _dense(keep), int(error == 0), _checksum(output), _MARGIN * error, samples)


def _unknown() -> tuple[object, ...]:
    return (0, 0, 0, 0, 0, -1.0, [])


def _row(name: str, answer: Sequence[Any]) -> str:
    *numbers, checksum, error, samples = answer
    texts = ", ".join(map(repr, samples)) or "0"
    return f"{{{quote(name)}, {', '.join(map(str, numbers))}, {checksum}ULL, {error!r}, {{{texts}}}}}"
