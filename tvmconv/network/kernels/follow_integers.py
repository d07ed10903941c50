"""Follow integer convolutions: from the 8-bit data before them to the operators after them, up to the next 8-bit tensor."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax

from ...epilogue import Step
from ...errors import InvalidProblemError
from ...frontends.following import FollowedGraph
from ...frontends.following import follow as walk
from ...problem import Problem
from ..ir.graph import Graph, by_channel, scalar
from ..ir.problem_of import NotCoveredError
from ..ir.quantizers import is_quantizer
from ..operators.quantize import QUANTIZED, step_of

Vector = npt.NDArray[np.float64]


def follow_integers(chain: Any, source: FollowedGraph, graph: Graph, taken: MutableMapping[Any, Any]) -> None:
    """Extend an integer chain by an integer bias, then by steps in f32, the last of which may round to integers again.

    Raises
    ------
    NotCoveredError
        If the data is not an 8-bit tensor minus a zero point.
    """
    chain.data, chain.problem = integer_data(chain.data, chain.problem, graph)
    if (bias := _vector(chain, graph, "relax.add")) is not None:
        chain.problem, chain.vectors["bias"] = chain.problem.with_(bias=True), bias
    reader, call = _next(chain, graph, "relax.astype")
    if reader is None or call is None or str(call.ty.dtype) != "float32":
        return
    chain.output, chain.problem = reader, _with_output(chain.problem, "f32")
    if (scale := _vector(chain, graph, "relax.multiply")) is not None:
        chain.problem, chain.vectors["scale"] = chain.problem.with_(epilogue=(Step("scale"),)), scale
    # A bias of f32 is added after the scale.
    if not chain.problem.bias and (shift := _vector(chain, graph, "relax.add")) is not None:
        chain.problem, chain.vectors["bias"] = chain.problem.with_(bias=True, bias_dtype="f32"), shift
    found = walk(source, chain.output, chain.problem.out_channels, taken, folds=False, fuse=True, takes=False)
    chain.problem = chain.problem.with_(epilogue=(*chain.problem.epilogue, *found.steps))
    chain.output, chain.residual = found.last, found.residual
    reader, call = _next(chain, graph)
    step = step_of(call) if call is not None and is_quantizer(call) else None
    if reader is not None and call is not None and step is not None and call.args[0].same_as(chain.output):
        chain.problem = _with_output(chain.problem, QUANTIZED[str(call.ty.dtype)], step)
        chain.output = reader


def integer_data(expr: Any, problem: Problem, graph: Graph) -> tuple[Any, Problem]:
    """Return the 8-bit tensor from which centred data is computed, and the problem with its type and zero point.

    Raises
    ------
    NotCoveredError
        If the data is not an 8-bit tensor minus a zero point.
    """
    moves: list[relax.Call] = []
    zero = 0
    while (call := graph.call(expr)) is not None:
        name, (given, *others) = call.op.name, call.args
        number = scalar(graph.array(others[0])) if name == "relax.subtract" else None
        if name == "relax.astype" and str(given.ty.dtype) in QUANTIZED:
            dtype = QUANTIZED[str(given.ty.dtype)] + problem.dtype.removeprefix(problem.types.data)
            builder = relax.BlockBuilder()
            for move in reversed(moves):
                given = builder.normalize(relax.Call(move.op, [given, *move.args[1:]], move.attrs, move.ty_args))
            try:
                return given, problem.with_(dtype=dtype, zero_point=zero)
            except InvalidProblemError as error:
                raise NotCoveredError(str(error)) from error
        if name in ("relax.permute_dims", "relax.reshape"):
            moves.append(call)
        elif number is not None:
            zero += int(number)
        else:
            break
        expr = given
    raise NotCoveredError("its factor is not an 8-bit tensor minus a zero point")


def _vector(chain: Any, graph: Graph, name: str) -> Vector | None:
    """Consume the next operator called `name`, and return its constant for each channel; None: another operator follows."""
    reader, call = _next(chain, graph, name)
    if reader is None or call is None:
        return None
    other = call.args[1] if call.args[0].same_as(chain.output) else call.args[0]
    vector = by_channel(graph.array(other), chain.problem, chain.problem.out_channels)
    if vector is not None:
        chain.output = reader
    return vector


def _next(chain: Any, graph: Graph, name: str = "") -> tuple[relax.Var | None, relax.Call | None]:
    """Return the output's only reader, and its call of the operator `name`; None where there is none."""
    readers = graph.readers(chain.output)
    reader = readers[0] if len(readers) == 1 else None
    return reader, graph.call(reader, name)


def _with_output(problem: Problem, dtype: str, *steps: Step) -> Problem:
    """Return an integer problem with another output type, and further steps."""
    of_sums = problem.dtype.removesuffix(problem.types.output)
    return problem.with_(dtype=of_sums + dtype, epilogue=(*problem.epilogue, *steps))
