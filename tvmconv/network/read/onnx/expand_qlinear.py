"""Expansions of ONNX's and Microsoft's operators on integers to f32 operators between DequantizeLinear and QuantizeLinear.

Microsoft's operators without sums of products are read in this form. For comparisons all are expanded: onnxruntime saturates pairs of
products in 16 bits on CPUs without VNNI, or lacks the operator (ConvInteger with filters of s8).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any

from onnx import TensorProto, helper

from ....frontends.onnx.graph import OURS, attributes_of

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

Add = Callable[..., str]
Expand = Callable[[Add, list[str], dict[str, Any]], object]
# Orders of an image's axes: channels first, and back.
_FIRST, _LAST = [0, 3, 1, 2], [0, 2, 3, 1]


def expand_qlinear(model: ModelProto, kept: Collection[str] = ()) -> None:
    """Expand the operators on integers of a model's graph, except those in `kept`.

    Raises
    ------
    ValueError
        If a node cannot be expanded; it names the node.
    """
    version = next((each.version for each in model.opset_import if each.domain in OURS), 1)
    nodes = [each for node in model.graph.node for each in _expand(node, kept, version)]
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def _expand(node: NodeProto, kept: Collection[str], version: int) -> Iterator[NodeProto]:
    given = attributes_of(node)
    last = given.pop("channels_last", node.op_type == "NhwcMaxPool")
    if node.op_type not in _EXPANSIONS or (node.op_type in kept and not last):
        yield node
        return
    if node.op_type == "QLinearSoftmax":
        before = given.pop("opset", 1) < 13  # then it is along all axes from `axis` on
        if given.get("axis", -1) != -1 and before != (version < 13):
            raise ValueError(
                f"the QLinearSoftmax node {node.name or node.output[0]!r} follows another opset than"
                f" {version}, the model's, for its axis; export the whole model with one opset"
            )
    made: list[NodeProto] = []

    def add(kind: str, *inputs: str, more: int = 0, **attributes: Any) -> str:
        name = f"{node.output[0]}.{len(made)}"
        outputs = [name, *(f"{name}.{number}" for number in range(more))]
        made.append(helper.make_node(kind, inputs, outputs, **attributes))
        return name

    inputs = [*node.input, *[""] * (9 - len(node.input))]
    if last:
        inputs[0] = add("Transpose", inputs[0], perm=_FIRST)
    if node.op_type in kept:
        add(node.op_type, *inputs[: len(node.input)], **given)
    else:
        _EXPANSIONS[node.op_type](add, inputs, given)
    if last:
        add("Transpose", str(made[-1].output[0]), perm=_LAST)
    made[-1].output[0] = node.output[0]
    for each in made:
        yield from _expand(each, kept, version) if each.op_type != node.op_type else [each]


def _conv(add: Add, inputs: list[str], given: dict[str, Any]) -> None:
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias = inputs
    data = add("DequantizeLinear", x, x_scale, x_zero)
    parts = [data, add("DequantizeLinear", w, w_scale, w_zero, axis=0)]
    if bias:
        parts.append(add("Mul", add("Cast", bias, to=TensorProto.FLOAT), add("Mul", x_scale, w_scale)))
    add("QuantizeLinear", add("Conv", *parts, **given), y_scale, y_zero)


def _matmul(add: Add, inputs: list[str], given: dict[str, Any]) -> None:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero, _ = inputs
    right = add("DequantizeLinear", b, b_scale, b_zero)
    add("QuantizeLinear", add("MatMul", add("DequantizeLinear", a, a_scale, a_zero), right, **given), y_scale, y_zero)


def _gemm(add: Add, inputs: list[str], given: dict[str, Any]) -> None:
    a, a_scale, a_zero, b, b_scale, b_zero, bias, y_scale, y_zero = inputs
    right = add("DequantizeLinear", b, b_scale, b_zero, axis=0 if given.get("transB") else 1)
    parts = [add("DequantizeLinear", a, a_scale, a_zero), right]
    if bias:  # which alpha multiplies, too
        parts.append(add("Mul", add("Cast", bias, to=TensorProto.FLOAT), add("Mul", a_scale, b_scale)))
    made = add("Gemm", *parts, **given, beta=given.get("alpha", 1.0))
    if y_scale:
        add("QuantizeLinear", made, y_scale, y_zero)


def _of(kind: str, first: int, count: int = 1) -> Expand:
    """Return the expansion of an operator on `count` dequantized tensors, after `first` inputs that are passed on."""

    def expand(add: Add, inputs: list[str], given: dict[str, Any]) -> None:
        ends = range(first, first + 3 * count, 3)
        values = [add("DequantizeLinear", *inputs[at : at + 3]) for at in ends]
        made = add(kind, *inputs[:first], *values, **given)
        add("QuantizeLinear", made, *inputs[first + 3 * count :][:2])

    return expand


def _concat(add: Add, inputs: list[str], given: dict[str, Any]) -> None:
    names = [each for each in inputs if each]
    parts = [add("DequantizeLinear", *names[at : at + 3]) for at in range(2, len(names), 3)]
    add("QuantizeLinear", add("Concat", *parts, **given), *names[:2])


def _integer(kind: str) -> Expand:
    def expand(add: Add, inputs: list[str], given: dict[str, Any]) -> None:
        # f32 is exact up to 2^24; onnxruntime's Conv has no wider type.
        wide = TensorProto.FLOAT if kind == "Conv" else TensorProto.INT32
        factors = []
        for at, values in enumerate(inputs[:2]):
            values = add("Cast", values, to=wide)
            zero = inputs[2 + at]
            factors.append(add("Sub", values, add("Cast", zero, to=wide)) if zero else values)
        add("Cast", add(kind, *factors, **given), to=TensorProto.INT32)

    return expand


def _product(add: Add, inputs: list[str], given: dict[str, Any]) -> None:
    a, b, a_scale, b_scale, a_zero, b_zero, bias, *_ = inputs
    sums = add("Cast", add("MatMulInteger", a, b, a_zero, b_zero, **given), to=TensorProto.FLOAT)
    made = add("Mul", sums, add("Mul", a_scale, b_scale))
    if bias:
        add("Add", made, bias)


def _dynamic_product(add: Add, inputs: list[str], given: dict[str, Any]) -> None:
    a, b, b_scale, b_zero, bias, *_ = inputs
    data = add("DynamicQuantizeLinear", a, more=2)
    _product(add, [data, b, f"{data}.0", b_scale, f"{data}.1", b_zero, bias], given)


_EXPANSIONS: dict[str, Expand] = {
    "ConvInteger": _integer("Conv"),
    "DynamicQuantizeMatMul": _dynamic_product,
    "MatMulInteger": _integer("MatMul"),
    "MatMulIntegerToFloat": _product,
    "NhwcMaxPool": lambda add, inputs, given: add("MaxPool", inputs[0], **given),
    "QGemm": _gemm,
    "QLinearAdd": _of("Add", 0, 2),
    "QLinearAveragePool": _of("AveragePool", 0),
    "QLinearConcat": _concat,
    "QLinearConv": _conv,
    "QLinearGlobalAveragePool": _of("GlobalAveragePool", 0),
    "QLinearLeakyRelu": _of("LeakyRelu", 0),
    "QLinearMatMul": _matmul,
    "QLinearMul": _of("Mul", 0, 2),
    "QLinearSigmoid": _of("Sigmoid", 0),
    "QLinearSoftmax": _of("Softmax", 0),
    "QLinearWhere": _of("Where", 1, 2),
}
MICROSOFT = frozenset(_EXPANSIONS) - {"ConvInteger", "MatMulInteger", "QLinearMatMul"}
