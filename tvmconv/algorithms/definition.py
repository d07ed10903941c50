"""`Definition`: the unscheduled function of one algorithm for one problem."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from tvm import te, tirx

from ..problem import Problem
from .annotations import BY_ELEMENT, CONSTANTS_LAST, FIXED, HOIST, ONE_THREAD, QUOTIENTS
from .backprop import covers_output
from .epilogue import Epilogue, calls_operators, narrow_once
from .first_values import set_first_values
from .pairs import element_type, filter_channels, filter_in_pairs, reads_pairs, stored_type
from .quotients import check_quotients
from .stage_names import FILL, FILTER
from .types import KERNEL_DTYPES, kernel_dtype, narrow

# Function from an output buffer's indices to the flat offset in the output, and the condition under which it is inside (None: always).
StoreIndex = Callable[[list[Any]], tuple[Any, Any]]
# Function from a window, data, filter and epilogue to the window's output.
Express = Callable[[Any, te.Tensor, te.Tensor, Epilogue], te.Tensor]


# Limits of `is_tiny`.
TINY_FLOPS, TINY_BYTES = 250_000, 64 * 1024


@dataclass(frozen=True)
class Definition:
    """An unscheduled function, and the layout of its arguments in the kernel's.

    Attributes
    ----------
    func
        The function of the problem's operands and one buffer for each of `outputs`. Data and filter have the flattened
        problem's shapes (elements may be pairs or quads of channels): the same bytes in the same order.
    windows
        The windows that `func` computes, in order.
    outputs
        Store index of each output buffer, in the kernel's one output.
    images
        For a block of a family, the names of arrays that may be parts of larger images (`tvmconv.lowering.cpu.images`); None: no block.
    """

    problem: Problem
    func: tirx.PrimFunc
    windows: Sequence[Any]
    outputs: list[StoreIndex]
    images: frozenset[str] | None = None

    def __post_init__(self) -> None:
        outs = list(self.func.params)[len(self.problem.operands) :]
        stored = (
            store_index([tirx.Var(f"i{axis}", "int32") for axis in range(len(out.shape))])
            for out, store_index in zip(outs, self.outputs, strict=True)
        )
        check_quotients([self.func.body, *(each for pair in stored for each in pair if each is not None)])


def assemble(
    problem: Problem,
    flat: Problem,
    windows: Sequence[Any],
    express: Express,
    vnni_factor: int = 1,
    asks: Sequence[str] | None = None,
    by_element: bool = False,
    filter_rows: bool = False,
    ordered: bool = False,
) -> Definition:
    """Return the definition of windows for a CPU, all expressed by one function.

    Parameters
    ----------
    problem, flat
        The problem, and its flattened form, whose windows they are.
    express
        ``express(window, data, filter, epilogue)`` returns a window's output.
    vnni_factor
        Channels in an element of data and filter: 2 for pairs of bf16, 4 for quads.
    asks
        Annotations of the function, beside those that its size or type implies; None: `requests_of`.
    by_element
        Whether dot products of pairs broadcast data from an element of a register (`Isa.dots_by_element`).
    filter_rows
        Whether the filter is a matrix, with a row of all other elements for each index of its first axis; a convolution's rows consist
        of pairs if `vnni_factor` is 2.
    ordered
        Whether all operations round alike on every CPU, as those of integers always do.
    """
    data_in_pairs = reads_pairs(flat, vnni_factor)
    data_in_pairs = data_in_pairs and not (filter_rows and any(not window.data_in_pairs for window in windows))
    arrays = _placeholders(problem, flat, vnni_factor, data_in_pairs, filter_rows)
    definition = fill_rest(problem, flat, arrays, windows, [express(window, *arrays) for window in windows])
    func = definition.func
    asks = requests_of(problem, windows) if asks is None else asks
    fixed = ordered or problem.is_quantized
    for request in (*asks, *[BY_ELEMENT] * by_element, *[ONE_THREAD] * is_tiny(problem), *[FIXED] * fixed):
        func = func.with_attr(request, True)
    return replace(definition, func=func)


def requests_of(problem: Problem, windows: Sequence[Any]) -> list[str]:
    """Return the annotations for windows in blocks of vectors, which need not divide their loops.

    Transposed convolutions add constants last, except with lanes across groups, where LLVM would then unroll more than registers
    hold.
    """
    across = any(getattr(window, "across", False) for window in windows)
    return [QUOTIENTS, HOIST, *[CONSTANTS_LAST] * (problem.op != "convolution" and not across)]


def is_tiny(problem: Problem) -> bool:
    """Return whether several threads would take longer than one.

    A parallel loop costs half a microsecond when its threads are awake, and milliseconds when one waits for a
    processor; a problem of this size takes 3 microseconds.
    """
    return problem.flops < TINY_FLOPS and problem.nbytes < TINY_BYTES


def fill_rest(
    problem: Problem,
    flat: Problem,
    arrays: tuple[te.Tensor, te.Tensor, Epilogue],
    windows: Sequence[Any],
    outs: list[te.Tensor],
) -> Definition:
    """Return the definition of windows and their outputs; a first stage fills the output if windows do not write all of it.

    Parameters
    ----------
    problem, flat
        The problem, and its flattened form, whose windows they are.
    arrays
        Placeholders of data and filter, and the epilogue, of `flat`.
    windows, outs
        The windows, whose ``store_index`` places their outputs, and these outputs.
    """
    data, weights, epilogue = arrays
    store_indices: list[StoreIndex] = [window.store_index for window in windows]
    if not windows or (flat.op == "convolution_backprop_data" and not covers_output(flat)):
        outs = [_fill(flat, epilogue), *outs]
        store_indices.insert(0, _in_order(flat))
    func = set_first_values(te.create_prim_func([data, weights, *epilogue.inputs, *outs]))
    return Definition(problem, func, windows, store_indices)


def _placeholders(
    problem: Problem, flat: Problem, vnni_factor: int, data_in_pairs: bool, filter_rows: bool
) -> tuple[te.Tensor, te.Tensor, Epilogue]:
    data = te.placeholder(flat.data_shape, kernel_dtype(flat.types.data), name="data")
    element = element_type(flat, vnni_factor)
    if vnni_factor > 1 and data_in_pairs:
        shape = (*flat.data_shape[:-1], flat.in_channels // vnni_factor)
        data = te.placeholder(shape, stored_type(flat, vnni_factor), name="data")
    filter_shape = list(flat.filter_shape)
    rows_in_pairs = filter_rows and flat.op == "convolution"
    in_pairs = vnni_factor > 1 and (rows_in_pairs or filter_in_pairs(flat, vnni_factor))
    if filter_rows:
        filter_shape = [filter_shape[0], prod(filter_shape[1:]) // (vnni_factor if rows_in_pairs else 1)]
    elif in_pairs:
        filter_shape[filter_channels(flat)] //= vnni_factor
    weights = te.placeholder(filter_shape, element if in_pairs else kernel_dtype(flat.types.filter), name=FILTER)
    output = problem.types.output
    once = output == "bf16" and calls_operators(problem)
    rounding = narrow_once if once else lambda value: narrow(value, output)
    return data, weights, Epilogue(problem, flat, KERNEL_DTYPES, rounding)


def _fill(problem: Problem, epilogue: Epilogue) -> te.Tensor:
    """Return the output of a problem whose sums are all zero, for elements that no tap meets."""
    shape = problem.output_shape
    channel_axis = problem.rank + 1 if problem.data_format == "NXC" else 1
    store_index = _in_order(problem)

    def value(*indices: Any) -> Any:
        zero = tirx.const(0, "float32")
        return epilogue(zero, indices[channel_axis], store_index(list(indices))[0])

    return te.compute(shape, value, name=FILL)


def _in_order(problem: Problem) -> StoreIndex:
    """Return the store index of an output buffer that has the output's shape."""
    strides = [prod(problem.output_shape[axis + 1 :]) for axis in range(len(problem.output_shape))]
    return lambda indices: (sum(i * s for i, s in zip(indices, strides, strict=True)), None)
