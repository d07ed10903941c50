"""The steps of epilogues in CUDA C++: `lowering/cuda/native/steps.cuh` has a function for each that is more than one operation."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.ir import Call

from ...algorithms.epilogue import calls_operators, step_of
from ...epilogue import OPERANDS
from ...problem import Problem
from ..common.rewrites import map_nodes
from . import NATIVE

STEPS = NATIVE / "steps.cuh"
_PREFIX = "tvmconv_"


def steps_header(problem: Problem) -> str:
    """Return the CUDA C++ of the functions that a problem's epilogue calls; empty if it calls none."""
    return STEPS.read_text() + "\n" if calls_operators(problem) else ""


def call_steps(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a function that calls those of the header instead of epilogues' operators, once for each lane of a vector."""
    return func.with_body(map_nodes(func.body, Call, _call_step))


def _call_step(call: Any) -> Any:
    step = step_of(call)
    if step is None:
        return call
    # Numbers stay scalars: code generation has no broadcast to eight f32.
    numbers = [tirx.const(number, "float32") for number in step.numbers]
    operands = [call.args[0], *numbers, *call.args[1 + len(numbers) :]]
    return tirx.call_pure_extern(str(call.ty.dtype), _PREFIX + step.name, *operands)


def finish(problem: Problem) -> str:
    """Return the C++ of the epilogue: a function of the sum in f32, its channel's operands, and the residual."""
    lines = ["x = x + channel.bias;"] if problem.bias else []
    for step in problem.epilogue:
        if step.name == "add":
            lines.append("x = x + residual;")
        else:
            array = [f"channel.{OPERANDS[step.name]}"] if step.name in OPERANDS else []
            operands = [*map(_literal, step.numbers), *array]
            lines.append(f"x = {_PREFIX}{step.name}({', '.join(['x', *operands])});")
    head = "__device__ __forceinline__ float tvmconv_finish(float x, const Channel &channel, float residual) {"
    return "\n".join([head, *(f"  {line}" for line in [*lines, "return x;"]), "}", ""])


def _literal(number: float) -> str:
    return f"{'-' if number < 0 else ''}CUDART_INF_F" if abs(number) == float("inf") else f"{number.hex()}f"
