"""ONNX models with functions of their own: inlined, they compute what onnxruntime computes of the file as it came."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from models import model, save, value
from near import assert_near
from onnx import helper, numpy_helper, parser

from tvmconv.epilogue import Step
from tvmconv.errors import SourceError
from tvmconv.frontends import read_model
from tvmconv.frontends.onnx.load import load

X = np.array([[-1, 2, -3, 4], [5, -6, 7, -8]], np.float32)


def ran(made: onnx.ModelProto) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, {"x": X}))


def inlined(made: onnx.ModelProto) -> onnx.ModelProto:
    loaded = load(made.SerializeToString(), "model")
    assert not loaded.functions
    onnx.checker.check_model(loaded)
    return loaded


def parsed(body: str, functions: str, opsets: str = '"": 18, "my": 1') -> onnx.ModelProto:
    return parser.parse_model(
        f"<ir_version: 10, opset_import: [{opsets}]> graph (float[2,4] x) => (float[2,4] y) {{ {body} }} {functions}"
    )


def function(
    name: str,
    nodes: Sequence[onnx.NodeProto],
    required: Sequence[str] = (),
    overload: str = "",
    opset: int = 18,
    **defaults: Any,
) -> onnx.FunctionProto:
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("my", 1)]
    made = helper.make_function(
        "my", name, ["x"], ["y"], nodes, imports, required, [helper.make_attribute(*each) for each in defaults.items()]
    )
    made.overload = overload
    return made


def referring(node: onnx.NodeProto, kind: int, **names: str) -> onnx.NodeProto:
    """Return a node whose attributes are those of the function that it is in."""
    for name, other in names.items():
        node.attribute.append(onnx.AttributeProto(name=name, ref_attr_name=other, type=kind))
    return node


def called(*nodes: onnx.NodeProto, functions: Sequence[onnx.FunctionProto]) -> onnx.ModelProto:
    made = model(nodes, [value("x", (2, 4))], [value("y", (2, 4))], opset=18, functions=functions)
    made.opset_import.append(helper.make_opsetid("my", 1))
    return made


LEAKY = '<domain: "my", opset_import: ["": 18]> leaky <alpha: float = 0.3>(x) => (y) { y = LeakyRelu <alpha: float = @alpha>(x) }'


@pytest.mark.parametrize(
    ("body", "functions"),
    [
        ("y = my.leaky (x)", LEAKY),
        ("y = my.leaky <alpha = 0.7> (x)", LEAKY),
        ("z = my.leaky (x) w = my.leaky <alpha = 2.0> (z) y = my.leaky (w)", LEAKY),
        # An attribute that the outer function has not, so the inner default counts; that is given; and the outer's own default.
        ("a = my.outer (x) b = my.outer <alpha = 0.9> (x) y = Add (a, b)",
         LEAKY + '<domain: "my", opset_import: ["": 18, "my": 1]> outer <alpha>(x) => (y) { y = my.leaky <alpha: float = @alpha>(x) }'),
        ("y = my.outer (x)",
         LEAKY + '<domain: "my", opset_import: ["": 18, "my": 1]> outer <beta: float = 0.8>(x) => (y) { y = my.leaky <alpha: float = @beta>(x) }'),
        # Without a default at either level it is the operator's.
        ("y = my.outer (x)",
         '<domain: "my", opset_import: ["": 18]> bare <alpha>(x) => (y) { y = LeakyRelu <alpha: float = @alpha>(x) }'
         '<domain: "my", opset_import: ["": 18, "my": 1]> outer <alpha>(x) => (y) { y = my.bare <alpha: float = @alpha>(x) }'),
    ],
)  # fmt: skip
def test_defaults_of_functions(body: str, functions: str) -> None:
    made = parsed(body, functions)
    for answer, right in zip(ran(inlined(made)), ran(made), strict=True):
        np.testing.assert_array_equal(answer, right)


def test_defaults_pass_through_as_many_levels_as_there_are() -> None:
    levels = 12
    functions = [
        function("level0", [referring(helper.make_node("LeakyRelu", ["x"], ["y"]), 1, alpha="a")], a=0.3),
        *(
            function(
                f"level{n}", [referring(helper.make_node(f"level{n - 1}", ["x"], ["y"], domain="my"), 1, a="a")], ["a"]
            )
            for n in range(1, levels)
        ),
    ]
    made = called(helper.make_node(f"level{levels - 1}", ["x"], ["y"], domain="my"), functions=functions)
    assert_near(ran(inlined(made))[0], np.where(X < 0, X * np.float32(0.3), X))


CONSTANTS = {
    "value_float": 1.5,
    "value_int": 3,
    "value_string": "text",
    "value_floats": [1.5, -2.0],
    "value_ints": [3, 4],
    "value_strings": ["a", "b"],
    "value": numpy_helper.from_array(np.arange(6, dtype=np.int16).reshape(2, 3)),
}


@pytest.mark.parametrize("name", CONSTANTS)
def test_defaults_of_each_type(name: str) -> None:
    default = CONSTANTS[name]
    kind = helper.make_attribute("a", default).type
    made = called(
        helper.make_node("f", ["x"], ["y"], domain="my"),
        functions=[function("f", [referring(helper.make_node("Constant", [], ["y"]), kind, **{name: "a"})], a=default)],
    )
    made.graph.output[0].ClearField("type")
    loaded = load(made.SerializeToString(), "model")
    (node,) = loaded.graph.node
    assert helper.get_attribute_value(node.attribute[0]) == helper.get_attribute_value(
        helper.make_attribute("a", default)
    )


def test_a_graph_as_a_default() -> None:
    branches = [
        helper.make_graph([helper.make_node(op, ["x"], [f"{op}_y"])], op, [], [value(f"{op}_y", None)])
        for op in ("Relu", "Neg")
    ]
    yes = helper.make_node("Constant", [], ["yes"], value=numpy_helper.from_array(np.array(True)))
    choice = referring(helper.make_node("If", ["yes"], ["y"], else_branch=branches[1]), 5, then_branch="branch")
    plain = onnx.helper.make_graph(
        [helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.ones((2, 4), np.float32)))],
        "c",
        [],
        [value("c", None)],
    )
    made = called(
        helper.make_node("f", ["x"], ["y"], domain="my"), functions=[function("f", [yes, choice], branch=plain)]
    )
    np.testing.assert_array_equal(ran(inlined(made))[0], np.ones((2, 4), np.float32))


def test_references_within_graphs_of_nodes() -> None:
    leaky = referring(helper.make_node("LeakyRelu", ["x"], ["inner"]), 1, alpha="a")
    branch = helper.make_graph([leaky], "branch", [], [value("inner", None)])
    yes = helper.make_node("Constant", [], ["yes"], value=numpy_helper.from_array(np.array(True)))
    choice = helper.make_node("If", ["yes"], ["y"], then_branch=branch, else_branch=branch)
    made = called(helper.make_node("f", ["x"], ["y"], domain="my"), functions=[function("f", [yes, choice], a=0.3)])
    assert_near(ran(inlined(made))[0], np.where(X < 0, X * np.float32(0.3), X))


def test_overloads() -> None:
    functions = [
        function("f", [referring(helper.make_node("LeakyRelu", ["x"], ["y"]), 1, alpha="a")], overload=overload, a=a)
        for overload, a in (("", 0.1), ("two", 0.2), ("three", 0.3))
    ]
    nodes = [helper.make_node("f", ["x"], [f"y{each}"], domain="my", overload=each) for each in ("two", "", "three")]
    made = called(*nodes, helper.make_node("Concat", ["ytwo", "y", "ythree"], ["all"], axis=0), functions=functions)
    made.graph.output[0].CopyFrom(value("all", (6, 4)))
    right = np.concatenate([np.where(X < 0, X * np.float32(a), X) for a in (0.2, 0.1, 0.3)])
    assert_near(ran(inlined(made))[0], right)


def test_functions_of_another_opset_are_converted() -> None:
    """onnxruntime (1.31) and ONNX's evaluator read such a function by the model's version: ONNX's text is the judge."""
    made = parsed("y = my.f (x)", '<domain: "my", opset_import: ["": 11]> f (x) => (y) { y = Softmax <axis = 0> (x) }')
    shares = np.exp(X - X.max())
    assert_near(ran(inlined(made))[0], shares / shares.sum(), summed=X.size)


def test_functions_of_another_opset_between_operators() -> None:
    """The types of what they take and give are nowhere in the model."""
    made = parsed(
        "a = Relu (x)\nb = my.f (a)\ny = Neg (b)", '<domain: "my", opset_import: ["": 12]> f (x) => (y) { y = Elu (x) }'
    )
    np.testing.assert_array_equal(ran(inlined(made))[0], -np.maximum(X, 0))


@pytest.mark.parametrize(("operator", "opset"), [("Hardmax", 11), ("Relu", 6)])
def test_functions_that_cannot_be_converted_are_named(operator: str, opset: int) -> None:
    made = parsed("y = my.f (x)", f'<domain: "my", opset_import: ["": {opset}]> f (x) => (y) {{ y = {operator} (x) }}')
    with pytest.raises(SourceError, match=rf"the function my.f uses opset {opset} of ONNX"):
        load(made.SerializeToString(), "model")


def test_domains_that_functions_alone_import() -> None:
    made = parsed("y = my.f (x)", '<domain: "my", opset_import: ["": 18]> f (x) => (y) { y = Relu (x) }', '"my": 1')
    np.testing.assert_array_equal(ran(inlined(made))[0], np.maximum(X, 0))


def test_functions_that_call_themselves_are_refused() -> None:
    made = parsed("y = my.f (x)", '<domain: "my", opset_import: ["": 18, "my": 1]> f (x) => (y) { y = my.f (x) }')
    with pytest.raises(SourceError, match=r"the function my\.f calls itself"):
        load(made.SerializeToString(), "model")


def test_each_function_is_made_once_for_calls_alike() -> None:
    """Work grows with the functions, not with the calls: 2 calls a level, of 40 levels."""
    functions = [function("f0", [helper.make_node("Relu", ["x"], ["y"])])]
    for n in range(1, 40):
        body = [helper.make_node(f"f{n - 1}", ["x"], ["z"], domain="my")]
        body.append(helper.make_node("Identity", ["z"], ["y"]))
        functions.append(function(f"f{n}", body))
    made = called(*(helper.make_node("f39", ["x"], [f"y{n}"], domain="my") for n in range(3)), functions=functions)
    made.graph.output[0].name = "y2"
    assert len(load(made.SerializeToString(), "model").graph.node) == 3 * 40


def test_a_default_is_the_epilogue_of_a_convolution(tmp_path: Path) -> None:
    text = """<ir_version: 10, opset_import: ["": 18, "my": 1]> graph (float[1,3,6,6] x, float[4,3,3,3] w) => (float[1,4,4,4] y)
    { c = Conv (x, w) y = my.leaky (c) }"""
    path = save(parser.parse_model(text + LEAKY), tmp_path)
    (node,) = read_model(path).nodes
    assert node.problem.epilogue == (Step("leaky", (np.float32(0.3).item(),)),)
