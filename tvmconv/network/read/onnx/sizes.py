"""ONNX's arithmetic on free extents: small tensors whose numbers are expressions.

TVM's frontend (0.27) supports only shapes and single numbers, and not all operators on them. Here a tensor is an array of Python numbers
and TVM's expressions; other numbers, such as a size times 0.5 before it is rounded, are exact multiples of expressions.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from math import lcm, prod
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from tvm import relax, sym, te, tirx
from tvm.ir import Expr, Range

from ....checks import LARGEST
from ....frontends.onnx.graph import attributes_of
from ...ir.constants import constant
from ...ir.free import dims_of, is_below_zero, simplify, symbols_in
from .size_values import Array, Multiple, Sizes, UnknownError, as_multiple, number_of, tensor_of

if TYPE_CHECKING:
    from onnx import NodeProto

# The most numbers of a tensor; larger tensors are data.
_MOST = 64
# The greatest denominator of a factor, and the relative error with which f32 stores the quotient.
_DENOMINATORS, _NEAR = 1 << 10, 1e-7


class SizeTensors:
    """The known tensors of a model, by name."""

    # Operators that accept shapes and single numbers; others need tensors.
    TAKING = ("Col2Im", "ConstantOfShape", "Expand", "Range", "Reshape", "Resize", "Slice", "TopK")

    def __init__(self) -> None:
        self._known: dict[str, Sizes] = {}

    def compute(self, node: NodeProto, values: Mapping[str, Any]) -> Sizes | None:
        """Return a node's result for known tensors; None for others, or an unknown operator."""
        given = attributes_of(node)
        try:
            if node.op_type == "Shape":
                dims = dims_of(values[node.input[0]].ty)
                made = None if dims is None else Sizes(_array(dims[given.get("start", 0) : given.get("end")]), "int64")
            elif node.op_type in _OPERATORS and any(name in self._known for name in node.input):
                made = _OPERATORS[node.op_type]([self.of(name, values) for name in node.input], given)
            else:
                return None
        except UnknownError:
            return None
        if made is not None:
            self._known[node.output[0]] = made
        return made

    def counted(self, node: NodeProto, values: Mapping[str, Any], builder: relax.BlockBuilder) -> relax.Expr | None:
        """Return a Range with bounds that depend on extents; None for other operators, or fixed numbers."""
        if node.op_type != "Range" or not any(name in self._known for name in node.input):
            return None
        given = [self.of(name, values) for name in node.input]
        start, limit, step = (as_multiple(each.array.item()) for each in given)
        if not isinstance(step.expression, int) or not step.factor or step.factor.denominator > _DENOMINATORS:
            raise ValueError(
                f"the Range node {node.name!r} has the step {given[2].array.item()}; with free extents a step must be a whole number or a simple fraction"
            )
        zero = tirx.const(0, "int64")
        ends = [(limit, limit.factor / step.factor), (start, -start.factor / step.factor)]
        whole = lcm(*(factor.denominator for _, factor in ends))
        length = sum((zero + each.expression) * int(factor * whole) for each, factor in ends)
        count = sym.Analyzer().simplify(tirx.floordiv(length + (whole - 1), whole))

        def compute(first: Any, many: Any) -> te.Tensor:
            dtype, (begin, by) = given[0].dtype, (number_of(start.factor), number_of(step.factor))
            return te.compute((many,), lambda at: first.astype(dtype) * begin + at.astype(dtype) * by, "counted")

        return builder.emit(builder.call_te(compute, zero + start.expression, count, primfunc_name_hint="range"))

    def tensors(self, node: NodeProto, builder: relax.BlockBuilder) -> dict[str, relax.Expr]:
        """Return the known inputs that depend on extents as tensors, for a node that needs tensors."""
        names = [] if node.op_type in self.TAKING else dict.fromkeys(node.input)
        free = {name: each for name in names if (each := self._known.get(name)) is not None and not each.is_fixed}
        return {name: tensor_of(builder, each) for name, each in free.items()}

    def of(self, name: str, values: Mapping[str, Any]) -> Sizes:
        """Return the numbers of a tensor.

        Raises
        ------
        UnknownError
            If they are not known.
        """
        if name in self._known or not name:
            return self._known[name] if name else Sizes(_array([]), "")
        array = constant(values.get(name))
        if array is None or array.size > _MOST or array.dtype.kind not in "iufb":
            raise UnknownError
        kept = np.empty(array.shape, object)
        kept[...] = array.tolist()
        return Sizes(kept, str(array.dtype))


def _array(numbers: Sequence[Any]) -> Array:
    made = np.empty(len(numbers), object)
    for at, each in enumerate(numbers):
        made[at] = each
    return made


def _each(compute: Callable[..., Any], *arrays: Array) -> Array:
    given = np.broadcast_arrays(*arrays)
    made = np.empty(given[0].shape, object)
    for at in np.ndindex(made.shape):
        numbers = [each[at] for each in given]
        if any(isinstance(each, Expr) for each in numbers):  # beside which TVM gives a number 32 bits
            numbers = [tirx.const(each, "int64") if type(each) is int else each for each in numbers]
        made[at] = simplify(compute(*numbers))
    return made


def _by_element(compute: Callable[..., Any], dtype: str = "") -> Callable[[list[Sizes], Any], Sizes]:
    def computed(inputs: list[Sizes], _: Any) -> Sizes:
        return Sizes(_each(compute, *(each.array for each in inputs)), dtype or inputs[-1].dtype)

    return computed


def _whole(*numbers: Any) -> None:
    """Raise UnknownError for a multiple, whose sums are not supported."""
    if any(isinstance(each, Multiple) for each in numbers):
        raise UnknownError


def _on_whole(compute: Callable[..., Any]) -> Callable[..., Any]:
    def computed(*numbers: Any) -> Any:
        _whole(*numbers)
        return compute(*numbers)

    return computed


def quotient_of(factor: float) -> Fraction | None:
    """Return a factor as a quotient of small integers, within the error of f32; None if there is none."""
    exact = Fraction(factor)
    near = exact.limit_denominator(_DENOMINATORS) if exact.denominator > _DENOMINATORS else exact
    return near if abs(float(near) - factor) <= _NEAR * factor else None


def _scale(multiple: Multiple, number: Any, divide: bool) -> Multiple:
    if isinstance(number, (Multiple, Expr)) or number <= 0:
        raise UnknownError
    factor = quotient_of(number)
    if factor is None:
        raise UnknownError
    return Multiple(multiple.expression, multiple.factor / factor if divide else multiple.factor * factor)


def _multiply(a: Any, b: Any) -> Any:
    if isinstance(a, Multiple) or isinstance(b, Multiple):
        return _scale(a, b, False) if isinstance(a, Multiple) else _scale(b, a, False)
    return a * b


def _divide(a: Any, b: Any) -> Any:
    if isinstance(a, Multiple):
        return _scale(a, b, True)
    _whole(b)
    if isinstance(a, Expr) or isinstance(b, Expr):
        try:  # ONNX rounds towards 0
            is_negative = is_below_zero(a)
        except ValueError as error:
            raise UnknownError from error
        return -tirx.floordiv(-a, b) if is_negative else tirx.floordiv(a, b)
    if b == 0:
        raise UnknownError
    return a / b if isinstance(a, float) else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _modulo(inputs: list[Sizes], given: Mapping[str, Any]) -> Sizes:
    if given.get("fmod", 0):
        raise UnknownError

    def compute(a: Any, b: Any) -> Any:
        return tirx.floormod(a, b) if isinstance(a, Expr) or isinstance(b, Expr) else a % b

    return _by_element(_on_whole(compute))(inputs, given)


def _decide(compare: Callable[[Any, Any], Any]) -> Callable[[Any, Any], bool]:
    """Return a comparison of numbers, or of expressions whose order is the same for all extents; others are unknown."""

    def decided(a: Any, b: Any) -> bool:
        _whole(a, b)
        if not isinstance(a, Expr) and not isinstance(b, Expr):
            return bool(compare(a, b))
        analyzer, asked = sym.Analyzer(), compare(a, b)
        for symbol in {*symbols_in(a), *symbols_in(b)}:  # extents are no less than 1
            analyzer.bind(symbol, Range(1, LARGEST))
        if analyzer.can_prove(asked):
            return True
        if analyzer.can_prove(tirx.Not(asked)):
            return False
        raise UnknownError

    return decided


def _equal(a: Any, b: Any) -> Any:
    return tirx.EQ(a, b) if isinstance(a, Expr) or isinstance(b, Expr) else a == b


def _cast(inputs: list[Sizes], given: Mapping[str, Any]) -> Sizes:
    to = np.dtype(helper.tensor_dtype_to_np_dtype(given["to"]))
    whole, floats = to.kind in "iu", to.kind == "f"

    def cast(number: Any) -> Any:
        if isinstance(number, Multiple):
            return number.rounded() if whole else number
        if isinstance(number, Expr):
            return Multiple(number) if floats else number
        return to.type(number).item()

    if not whole and not floats and given["to"] != TensorProto.BOOL:
        raise UnknownError
    return Sizes(_each(cast, inputs[0].array), str(to))


def _round(up: bool) -> Callable[[list[Sizes], Any], Sizes]:
    def rounded(number: Any) -> Any:
        if isinstance(number, Multiple):
            return Multiple(number.rounded(up))
        return float(np.ceil(number) if up else np.floor(number))

    return _by_element(rounded)


def _gather(inputs: list[Sizes], given: Mapping[str, Any]) -> Sizes:
    made = np.take(inputs[0].array, inputs[1].array.astype(np.int64), int(given.get("axis", 0)))
    return Sizes(_keep(made), inputs[0].dtype)


def _keep(value: Any) -> Array:
    """Return a result of NumPy, which unwraps single elements, as an array."""
    if isinstance(value, np.ndarray):
        return value
    made = np.empty((), object)
    made[()] = value
    return made


def _axes(inputs: list[Sizes], given: Mapping[str, Any]) -> list[int] | None:
    if len(inputs) > 1 and inputs[1].dtype:
        return [int(each) for each in inputs[1].array.flat]
    return [int(each) for each in given["axes"]] if "axes" in given else None


def _unsqueeze(inputs: list[Sizes], given: Mapping[str, Any]) -> Sizes:
    return Sizes(np.expand_dims(inputs[0].array, tuple(_axes(inputs, given) or ())), inputs[0].dtype)


def _squeeze(inputs: list[Sizes], given: Mapping[str, Any]) -> Sizes:
    axes = _axes(inputs, given)
    return Sizes(_keep(np.squeeze(inputs[0].array, None if axes is None else tuple(axes))), inputs[0].dtype)


def _slice(inputs: list[Sizes], given: Mapping[str, Any]) -> Sizes:
    if any(not each.is_fixed for each in inputs[1:]) or len(inputs) < 3:
        raise UnknownError
    data, starts, ends, *more = inputs
    axes, steps = (
        [int(each) for each in one.array.flat] if one.dtype else None
        for one in [*more, *[Sizes(_array([]), "")] * 2][:2]
    )
    index = [slice(None)] * data.array.ndim
    for at, (start, end) in enumerate(zip(starts.array.flat, ends.array.flat, strict=True)):
        index[axes[at] if axes else at] = slice(int(start), int(end), steps[at] if steps else 1)
    return Sizes(data.array[tuple(index)], data.dtype)


def _concat(inputs: list[Sizes], given: Mapping[str, Any]) -> Sizes:
    return Sizes(np.concatenate([each.array for each in inputs], int(given["axis"])), inputs[0].dtype)


def _reshape(inputs: list[Sizes], given: Mapping[str, Any]) -> Sizes:
    return Sizes(inputs[0].array.reshape([int(each) for each in inputs[1].array.flat]), inputs[0].dtype)


def _product(inputs: list[Sizes], given: Mapping[str, Any]) -> Sizes:
    _whole(*inputs[0].array.flat)
    made = _keep(simplify(prod(inputs[0].array.flat)))
    if _axes(inputs, given) not in (None, [0]) or inputs[0].array.ndim != 1:
        raise UnknownError
    return Sizes(made.reshape(1) if given.get("keepdims", 1) else made, inputs[0].dtype)


def _repeat(inputs: list[Sizes], given: Mapping[str, Any]) -> Sizes:
    """Return a ConstantOfShape: one number in a fixed shape."""
    value = numpy_helper.to_array(given["value"]) if "value" in given else np.zeros(1, np.float32)
    if not inputs[0].is_fixed:
        raise UnknownError
    made = np.empty([int(each) for each in inputs[0].array.flat], object)
    made[...] = value.item()
    return Sizes(made, str(value.dtype))


def _where(inputs: list[Sizes], given: Mapping[str, Any]) -> Sizes:
    if not inputs[0].is_fixed:
        raise UnknownError
    return Sizes(
        _each(lambda condition, a, b: a if condition else b, *(each.array for each in inputs)), inputs[1].dtype
    )


def _root(number: Any) -> float:
    if isinstance(number, (Multiple, Expr)):
        raise UnknownError
    return float(np.sqrt(np.float32(number)))


_OPERATORS: Mapping[str, Callable[[list[Sizes], Mapping[str, Any]], Sizes]] = {
    "Add": _by_element(_on_whole(operator.add)),
    "Cast": _cast,
    "Ceil": _round(up=True),
    "Concat": _concat,
    "ConstantOfShape": _repeat,
    "Div": _by_element(_divide),
    "Equal": _by_element(_decide(_equal), "bool"),
    "Floor": _round(up=False),
    "Gather": _gather,
    "Greater": _by_element(_decide(operator.gt), "bool"),
    "GreaterOrEqual": _by_element(_decide(operator.ge), "bool"),
    "Identity": _by_element(lambda number: number),
    "Less": _by_element(_decide(operator.lt), "bool"),
    "LessOrEqual": _by_element(_decide(operator.le), "bool"),
    "Max": _by_element(_on_whole(lambda a, b: tirx.max(a, b) if isinstance(a + b, Expr) else max(a, b))),
    "Min": _by_element(_on_whole(lambda a, b: tirx.min(a, b) if isinstance(a + b, Expr) else min(a, b))),
    "Mod": _modulo,
    "Mul": _by_element(_multiply),
    "Neg": _by_element(_on_whole(operator.neg)),
    "ReduceProd": _product,
    "Reshape": _reshape,
    "Slice": _slice,
    "Sqrt": _by_element(_root),
    "Squeeze": _squeeze,
    "Sub": _by_element(_on_whole(operator.sub)),
    "Transpose": lambda inputs, given: Sizes(inputs[0].array.transpose(given.get("perm")), inputs[0].dtype),
    "Unsqueeze": _unsqueeze,
    "Where": _where,
}
