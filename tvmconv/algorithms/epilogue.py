"""Epilogues in tensor expressions, from a sum to the stored output.

All steps but `add` are operators of their own, which schedules and TVM's passes treat as plain arithmetic; lowering
(lowering/common/activations.py) replaces them by arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf, prod
from typing import Any

from tvm import te, tirx
from tvm.ir import Call, Op, PrimType

from ..dtypes import DTYPE_BYTES, ROWS, is_integer
from ..epilogue import NUMBERS, OPERANDS, QUANTIZERS, SHORT, Step
from ..problem import Problem
from .flatten import original_channel
from .types import KERNEL_DTYPES, widen, zero_outside


def register_operator(name: str) -> Op:
    """Register an elementwise operator without side effects, and return it."""
    from tvm.ir import _ffi_api

    name = f"tvmconv.{name}"
    if name not in Op.list_op_names():
        _ffi_api.RegisterOp(name, "a function of each lane")
        operator = Op.get(name)
        operator.set_attr("TCallEffectKind", Op.get("tirx.exp").get_attr("TCallEffectKind"))
        operator.set_attr("TVectorizable", True)
        operator.set_attr("TScriptPrinterName", name)
    return Op.get(name)


# Operators of the f32 value, the step's numbers, and for prelu and scale an element of their array.
_STEPS = {name: register_operator(name) for name in NUMBERS if name != "add"}
# Operators with a shorter approximation, for values that are rounded to 16 bits next.
_SHORT = {name: register_operator(f"{name}_short") for name in SHORT}
_NAMES = {operator.name: name for steps in (_STEPS, _SHORT) for name, operator in steps.items()}
_NARROW = register_operator("narrow")


# Times a quantizer's step: scales above that saturate all sums but 0. And the largest bound for which bound times sum cannot overflow f32.
STEPS_OF_SCALE, MOST_SCALE = 1024, 2.0**64


class Epilogue:
    """Steps applied to the sums of a problem.

    Parameters
    ----------
    problem, flat
        The problem, and its flattened form, whose channels are those of sums.
    types
        TVM types of a kernel's arrays by a problem's types.
    rounding
        Function that rounds an f32 value to the output's type.

    Attributes
    ----------
    inputs
        Placeholders of its arrays, including the bias, in the order of the problem's operands.
        `residual` has one axis.
    """

    def __init__(
        self, problem: Problem, flat: Problem, types: Mapping[str, str], rounding: Callable[[Any], Any]
    ) -> None:
        self._problem, self._rounding = problem, rounding
        self._channel = original_channel(problem, flat)
        self.inputs = [
            te.placeholder((prod(shape),), types[dtype], name=name)
            for name, (shape, dtype) in list(problem.operands.items())[2:]
        ]
        self._arrays = {tensor.op.name: tensor for tensor in self.inputs}

    def __call__(
        self,
        total: Any,
        channel: Any,
        offset: Any,
        rounding: Callable[[Any], Any] | None = None,
        bounds: Sequence[Any] = (),
    ) -> Any:
        """Return the output of a sum.

        Parameters
        ----------
        channel, offset
            Its output channel in the flattened problem, and its flat offset in the output.
        rounding
            Function that rounds to the output's type, in place of the epilogue's.
        bounds
            Conditions under which the channel exists, if more channels are computed than stored.
        """

        def of_channel(name: str) -> Any:
            value = self._value(name, self._channel(channel))
            return zero_outside(bounds, value, str(value.ty.dtype))

        problem, late = self._problem, self._problem.bias_dtype == "f32"
        if problem.is_quantized:
            total = total.astype("int32")
        if problem.bias and not late:
            total = total + of_channel("bias")
        if problem.types.output == "s32":
            return total
        if problem.is_quantized:
            total = total.astype("float32")
        steps, bound = problem.epilogue, self._scale_bound
        if late and (not steps or steps[0].name != "scale"):
            total = total + of_channel("bias")
        for number, step in enumerate(steps, 1):
            if step.name == "add":
                total = total + self._value("residual", offset)
            else:
                if step.name in QUANTIZERS:
                    return round_to_integer(step, total, problem.types.output, bound is not None)
                operands = [of_channel(OPERANDS[step.name])] if step.name in OPERANDS else []
                if bound is not None and step.name == "scale":
                    operands = [_bound(operands[0], bound)]
                short = number == len(steps) and DTYPE_BYTES[problem.types.output] == 2
                total = apply_operator(step, total, *operands, short=short)
            if late and number == 1 and step.name == "scale":
                total = total + of_channel("bias")
        return (rounding or self._rounding)(total)

    @property
    def _scale_bound(self) -> float | None:
        """Bound to which scales can be clamped without effect so that no value becomes NaN; None: there is none.

        Integer sums times a finite scale are finite, and beyond the bound saturate like those of any larger scale. A scale of NaN gives
        the zero point everywhere, as 0 does.
        """
        steps, first = self._problem.epilogue, self._problem.epilogue[:1]
        keeps = all(
            step.name == "relu" or (step.name == "clip" and step.numbers[0] <= 0 <= step.numbers[1])
            for step in steps[1:-1]
        )
        if self._problem.bias_dtype == "f32" or not first or first[0].name != "scale" or not keeps:
            return None
        bound = STEPS_OF_SCALE * steps[-1].numbers[0] if steps[-1].name in QUANTIZERS else inf
        return bound if bound < MOST_SCALE else None

    def _value(self, name: str, index: Any) -> Any:
        """Return an element of an array, widened to f32 unless it is an integer (a bias of s32)."""
        dtype, value = self._problem.operands[name][1], self._arrays[name](index)
        return value if is_integer(dtype) else _widen(value)


def apply_operator(step: Step, value: Any, *operands: Any, short: bool = False) -> Any:
    """Return a step other than `add` applied to an f32 value, as a call of its operator; prelu and scale take an array's element.

    If `short`, the result is only as exact as types of 16 bits need.
    """
    numbers = [tirx.const(number, "float32") for number in step.numbers]
    operator = _SHORT.get(step.name) if short else None
    return Call(operator or _STEPS[step.name], [value, *numbers, *operands], ret_ty=PrimType("float32"))


def _bound(scale: Any, bound: float) -> Any:
    """Return a scale clamped to a bound; 0 for NaN, for which all comparisons are false."""
    most, least, zero = (tirx.const(each, "float32") for each in (bound, -bound, 0))
    within = tirx.Select(scale < most, tirx.Select(scale > least, scale, least), most)
    return tirx.Select(scale <= tirx.const(inf, "float32"), within, zero)


def round_to_integer(step: Step, value: Any, dtype: str, is_number: bool = False) -> Any:
    """Return an f32 value rounded by a step to an integer type; `is_number`: the value is known not to be NaN."""
    bounds = [tirx.const(bound, "int32") for bound in ROWS[dtype].range or ()]
    numbers = [tirx.const(number, "float32") for number in step.numbers]
    bounds.append(tirx.const(is_number, "int32"))
    whole = Call(_STEPS[step.name], [value, *numbers, *bounds], ret_ty=PrimType("int32"))
    return whole.astype(KERNEL_DTYPES[dtype])


def calls_operators(problem: Problem) -> bool:
    """Return whether a problem's epilogue has a step with an operator: any but `add`."""
    return any(step.name in _STEPS for step in problem.epilogue)


def narrow_once(value: Any) -> Any:
    """Return f32 `value` rounded to bf16's bits, as an operator: inlined arithmetic would compute `value` several times."""
    return Call(_NARROW, [value], ret_ty=PrimType("uint16"))


def value_of_narrow(call: Call) -> Any:
    """Return the operand of a call of `narrow_once`; None for other calls."""
    return call.args[0] if call.op.same_as(_NARROW) else None


def _widen(value: Any) -> Any:
    return widen(value, "bf16") if str(value.ty.dtype) == "uint16" else value.astype("float32")


def is_short(call: Call) -> bool:
    """Return whether a step's operator is the one with the shorter approximation."""
    return call.op.same_as(_SHORT.get(_NAMES[call.op.name]))


def step_of(call: Call) -> Step | None:
    """Return the step of a call of its operator; None for other calls."""
    name = _NAMES.get(call.op.name) if isinstance(call.op, Op) else None
    return None if name is None else Step(name, tuple(map(_number, call.args[1 : 1 + len(NUMBERS[name])])))


def _number(constant: Any) -> float:
    return _number(constant.value) if isinstance(constant, tirx.Broadcast) else float(constant.value)
