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

# Function from an output buffer's indices to (flat offset in the output, condition under which it is inside, or None: always).
StoreIndex = Callable[[list[Any]], tuple[Any, Any]]
# Function from a window, data, filter and epilogue to the window's output.
Express = Callable[[Any, te.Tensor, te.Tensor, Epilogue], te.Tensor]


# Limits below both of which one thread computes: see `is_tiny`.
TINY_FLOPS, TINY_BYTES = 250_000, 64 * 1024


@dataclass(frozen=True)
class Definition:
    """An unscheduled function, and how its arguments lie in the kernel's.

    Attributes
    ----------
    func
        Parameters: the problem's operands, then one buffer for each of `outputs`. Data and
        filter have the flattened problem's shapes (data possibly by pairs): the same bytes in the same order.
    windows
        What `func` computes, in order: each a Window, on GPUs a CudaWindow.
    outputs
        The store index of each output buffer's elements in the kernel's one output.
    images
        Of a block of a family, the names of arrays that may be parts of larger images (`tvmconv.lowering.cpu.images`); None: it is no block.
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
    """Return the definition of windows for a CPU, each expressed alike.

    Parameters
    ----------
    problem, flat
        The problem, and its flattened form, of which the windows are.
    express
        ``express(window, data, filter, epilogue)`` is a window's output.
    vnni_factor
        Channels in an element of data and filter: 2 for pairs of bf16, 4 for quads.
    asks
        Annotations for lowering on the function, in addition to those by its size; None: `requests_of`.
    by_element
        Whether dot products of pairs take the data's from an element of a register (`Isa.dots_by_element`).
    filter_rows
        Whether the filter is a row of all its elements for each index of the first axis: of a convolution, whose rows are summed, by
        pairs if `vnni_factor` is 2.
    ordered
        Whether each operation is rounded alike on every CPU, beside those of integers.
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
    """Return what lowering is to do with windows in blocks of vectors, which their loops need not divide.

    Constants are added last in a transposed convolution, but with lanes across groups LLVM would then unroll more than registers hold.
    """
    across = any(getattr(window, "across", False) for window in windows)
    return [QUOTIENTS, HOIST, *[CONSTANTS_LAST] * (problem.op != "convolution" and not across)]


def is_tiny(problem: Problem) -> bool:
    """Return whether other threads would cost more than they give.

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
    """Return the definition of windows and their outputs, which first fills the output where no window writes it.

    Parameters
    ----------
    problem, flat
        The problem, and its flattened form, of which the windows are.
    arrays
        Placeholders of data and filter, and the epilogue, of `flat`.
    windows, outs
        Each window's ``store_index`` says where the elements of its output are stored.
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
    """The output as it is where no tap meets it: what becomes of a sum of zero."""
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
