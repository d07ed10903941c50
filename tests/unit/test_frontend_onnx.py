"""Convolutions of ONNX models: the real ones that come with the package, and small ones for each rule."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models import FLOAT, LIGHT, conv_model, model, save, value, weight
from onnx import TensorProto, helper, numpy_helper

from tvmconv import cli, ops, reference
from tvmconv.epilogue import format_epilogue
from tvmconv.errors import InvalidProblemError, SourceError
from tvmconv.frontends import read_model, read_source, read_uses
from tvmconv.frontends.onnx.rules import node_problem
from tvmconv.problem import Problem


def read_one(proto: onnx.ModelProto, folder, **options) -> Problem:
    (problem,) = read_source(save(proto, folder), **options)
    return problem


LIGHT_COUNTS = {  # nodes, distinct problems, how often each epilogue follows
    "bvlc_alexnet": (5, 5, {"relu": 5}),
    "densenet121": (121, 67, {"": 62, "relu": 59}),
    "inception_v1": (57, 49, {"relu": 57}),
    "inception_v2": (69, 38, {"relu": 69}),
    "resnet50": (53, 23, {"": 4, "relu": 33, "add-relu": 16}),
    "shufflenet": (49, 14, {"": 19, "relu": 17, "add-relu": 13}),
    "squeezenet": (26, 18, {"relu": 26}),
    "vgg19": (16, 9, {"relu": 16}),
    "zfnet512": (5, 4, {"relu": 5}),
}


@pytest.mark.parametrize("name", LIGHT_COUNTS)
def test_real_models(name):
    nodes, problems, epilogues = LIGHT_COUNTS[name]
    uses = read_uses(str(LIGHT / f"light_{name}.onnx"), fuse=False)
    assert (sum(len(use.places) for use in uses), len(uses)) == (nodes, problems)
    assert len({use.problem for use in uses}) == len(uses)
    fused = read_model(str(LIGHT / f"light_{name}.onnx")).nodes
    assert Counter(format_epilogue(node.problem.epilogue) for node in fused) == epilogues


def test_all_real_models():
    """401 nodes written in 218 ways; two of those differ only in spelling out that pads are zero."""
    spellings, problems = set(), set()
    for path in sorted(LIGHT.glob("*.onnx")):
        proto = onnx.shape_inference.infer_shapes(onnx.load(path))
        shapes = {
            v.name: tuple(d.dim_value for d in v.type.tensor_type.shape.dim)
            for v in (*proto.graph.value_info, *proto.graph.input, *proto.graph.output)
        }
        nodes = [node for node in proto.graph.node if node.op_type == "Conv"]
        uses = read_uses(str(path), fuse=False)
        by_place = {place: use.problem for use in uses for place in use.places}
        assert len(by_place) == len(nodes)
        problems.update(by_place.values())
        for node in nodes:
            problem = by_place[node.name or node.output[0]]
            assert problem.data_shape == shapes[node.input[0]]
            assert problem.filter_shape == shapes[node.input[1]]
            assert problem.output_shape == shapes[node.output[0]]
            assert problem.bias == (len(node.input) == 3)
            attributes = sorted((a.name, str(helper.get_attribute_value(a))) for a in node.attribute)
            spellings.add((problem.data_shape, problem.filter_shape, problem.bias, *attributes))
    assert sum(nodes for nodes, *_ in LIGHT_COUNTS.values()) == 401
    assert len(spellings) == 218
    assert len(problems) == 217


def test_first_seen_order_and_places():
    uses = read_uses(str(LIGHT / "light_squeezenet.onnx"))
    assert uses[0].problem.in_spatial == (224, 224)
    assert uses[0].places[0] == "n0"
    assert any(len(use.places) > 1 for use in uses)


@pytest.mark.smoke
def test_layouts_and_overrides(tmp_path):
    proto = conv_model(b=(4,), pads=[1, 1, 1, 1])
    problem = read_one(proto, tmp_path)
    assert (problem.data_format, problem.filter_format, problem.dtype) == ("NCX", "OIX", "f32")
    assert (problem.data_shape, problem.filter_shape, problem.bias) == ((1, 3, 8, 8), (4, 3, 3, 3), True)
    changed = read_one(proto, tmp_path, dtype="bf16", data_format="NXC", filter_format="XIO")
    assert changed == problem.with_(dtype="bf16", data_format="NXC", filter_format="XIO")
    assert (changed.data_shape, changed.filter_shape) == ((1, 8, 8, 3), (3, 3, 3, 4))


@pytest.mark.parametrize(
    ("elem_type", "dtype"), [(TensorProto.FLOAT, "f32"), (TensorProto.FLOAT16, "f16"), (TensorProto.BFLOAT16, "bf16")]
)
def test_types(elem_type, dtype, tmp_path):
    assert read_one(conv_model(elem_type=elem_type), tmp_path).dtype == dtype


def test_other_types_need_a_choice(tmp_path):
    proto = conv_model(elem_type=TensorProto.DOUBLE)
    with pytest.raises(SourceError, match=r"Conv node 'conv': it computes in double; .* choose one with --dtype"):
        read_one(proto, tmp_path)
    assert read_one(proto, tmp_path, dtype="f32").dtype == "f32"


def test_attributes_and_defaults(tmp_path):
    plain = read_one(conv_model(), tmp_path)
    assert (plain.strides, plain.dilations, plain.groups, plain.bias) == ((1, 1), (1, 1), 1, False)
    assert (plain.pads_begin, plain.pads_end) == ((0, 0), (0, 0))
    problem = read_one(
        conv_model(w=(6, 1, 2, 3), group=3, strides=[2, 1], dilations=[3, 2], pads=[1, 2, 3, 4], kernel_shape=[2, 3]),
        tmp_path,
    )
    assert problem == ops.convolution(
        (1, 3, 8, 8), (6, 1, 2, 3), strides=[2, 1], dilations=[3, 2], pads_begin=[1, 2], pads_end=[3, 4], groups=3,
        data_format="NCX", filter_format="OIX",
    )  # fmt: skip


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
def test_ranks(op, rank, tmp_path):
    problem = read_one(conv_model(op, x=(2, 4, *(7,) * rank), w=(4, 4, *(3,) * rank)), tmp_path)
    assert problem.rank == rank
    assert problem.out_spatial == ((5 if op == "Conv" else 9),) * rank


X3_K3_S2 = [  # attributes, resolved pads (canonical), output extent; natural 7, SAME asks for 6
    ({}, (0, 0), 7),
    ({"pads": [1, 1]}, (1, 1), 5),
    ({"pads": [1, 1], "output_padding": [1]}, (1, 0), 6),
    ({"output_padding": [1]}, (0, 0), 8),
    ({"auto_pad": "VALID"}, (0, 0), 7),
    ({"auto_pad": "SAME_UPPER"}, (0, 1), 6),
    ({"auto_pad": "SAME_LOWER"}, (1, 0), 6),
    ({"auto_pad": "SAME_UPPER", "output_padding": [1]}, (1, 0), 6),
    ({"output_shape": [6]}, (1, 0), 6),
    ({"output_shape": [6], "pads": [0, 1]}, (1, 0), 6),
    ({"auto_pad": "SAME_UPPER", "output_shape": [6]}, (0, 1), 6),
    ({"auto_pad": "SAME_LOWER", "output_shape": [6]}, (1, 0), 6),
    ({"output_shape": [4]}, (2, 1), 4),
    ({"output_shape": [9]}, (0, 0), 9),
    ({"output_shape": [6], "output_padding": [1]}, (1, 0), 6),
]


@pytest.mark.parametrize(("attributes", "pads", "extent"), X3_K3_S2)
def test_transposed_padding(attributes, pads, extent, tmp_path):
    proto = conv_model("ConvTranspose", x=(1, 1, 3), w=(1, 1, 3), strides=[2], **attributes)
    problem = read_one(proto, tmp_path)
    assert (problem.pads_begin + problem.pads_end, problem.out_spatial) == (pads, (extent,))


def test_same_with_a_filter_shorter_than_its_stride():
    """Then even the unpadded output is shorter than SAME asks for."""
    problem = node_problem("ConvTranspose", {"strides": [3], "auto_pad": "SAME_UPPER"}, (1, 1, 4), (1, 1, 2))
    assert (problem.pads_begin, problem.pads_end, problem.out_spatial) == ((0,), (0,), (11,))


@st.composite
def nodes(draw):
    """A node of either type: (op type, attributes, data shape, filter shape, with bias)."""
    op, rank = draw(st.sampled_from(["Conv", "ConvTranspose"])), draw(st.integers(1, 3))

    def axes(low, high, count=rank):
        return draw(st.lists(st.integers(low, high), min_size=count, max_size=count))

    x, k, group = axes(1, 7), axes(1, 4), draw(st.sampled_from([1, 1, 2]))
    inputs, outputs = group * draw(st.integers(1, 2)), group * draw(st.integers(1, 2))
    optional = {
        "strides": lambda: axes(1, 4),
        "kernel_shape": lambda: k,
        "dilations": lambda: axes(1, 3),
        "pads": lambda: axes(0, 3, 2 * rank),
        "auto_pad": lambda: draw(st.sampled_from(["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"])),
    }
    if op == "ConvTranspose":
        optional |= {"output_padding": lambda: axes(0, 2), "output_shape": lambda: axes(1, 24)}
    attributes = {name: make() for name, make in optional.items() if draw(st.booleans())}
    if attributes.get("auto_pad", "NOTSET") != "NOTSET":
        attributes.pop("pads", None)  # ONNX forbids both
    shape = (outputs, inputs // group, *k) if op == "Conv" else (inputs, outputs // group, *k)
    return op, {**attributes, "group": group}, (1, inputs, *x), shape, draw(st.booleans())


def test_equals_onnxruntime():
    """Every node that onnxruntime runs gives its answer, or is refused for a stated reason."""
    # Older ones compute nonsense for outputs longer than there is data for, which this one refuses.
    onnxruntime = pytest.importorskip("onnxruntime", minversion="1.31")
    onnxruntime.set_default_logger_severity(4)
    errors = onnxruntime.capi.onnxruntime_pybind11_state
    equal = 0

    @settings(max_examples=400)
    @given(nodes())
    def compare(node):
        nonlocal equal
        op, attributes, data_shape, filter_shape, with_bias = node
        rng = np.random.default_rng(0)
        channels = filter_shape[0] if op == "Conv" else filter_shape[1] * attributes["group"]
        shapes = {"x": data_shape, "w": filter_shape} | ({"b": (channels,)} if with_bias else {})
        feeds = {name: rng.integers(-4, 5, shape).astype(np.float32) for name, shape in shapes.items()}
        made = helper.make_node(op, list(feeds), ["y"], **attributes)
        proto = model([made], [value(name, shape) for name, shape in shapes.items()])
        try:
            session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
            (expected,) = session.run(None, feeds)
        except (errors.Fail, errors.InvalidArgument, errors.InvalidGraph, errors.RuntimeException):
            return  # it also refuses longer outputs and dilated SAME, which the contract defines
        try:
            problem = node_problem(op, attributes, data_shape, filter_shape, shapes.get("b"))
        except InvalidProblemError as error:
            assert "which frameworks split differently" in str(error)
            return
        equal += 1
        np.testing.assert_array_equal(reference.compute(problem, *feeds.values()), expected)

    compare()
    assert equal > 100


def test_free_batch(tmp_path):
    for dim in ("N", None):
        proto = conv_model(x=(dim, 3, 8, 8))
        assert read_one(proto, tmp_path, batch=5).batch == 5
        assert read_one(proto, tmp_path, batch=0).is_empty
        with pytest.raises(
            SourceError, match=r"node 'conv': its data 'x' has the unknown extents \[\?, 3, 8, 8\]"
        ) as e:
            read_one(proto, tmp_path)
        assert "The model leaves free: x[0]" in str(e.value)
        assert "--batch N" in str(e.value)


def test_batch_through_reshape(tmp_path):
    """The batch is what the model computes with, wherever a convolution's own dimension 0 comes from."""
    nodes = [
        helper.make_node("Shape", ["x"], ["n"], start=0, end=1),
        helper.make_node("Mul", ["n", "two"], ["n2"]),
        helper.make_node("Concat", ["n2", "rest"], ["shape"], axis=0),
        helper.make_node("Reshape", ["x", "shape"], ["halves"]),
        helper.make_node("Conv", ["halves", "w"], ["y"], name="conv"),
    ]
    constants = [
        helper.make_tensor("two", TensorProto.INT64, [1], [2]),
        helper.make_tensor("rest", TensorProto.INT64, [3], [3, 4, 8]),
    ]
    proto = model(nodes, [value("x", ("N", 3, 8, 8))], [value("y", None)], [*constants, weight("w", (4, 3, 3, 3))])
    assert read_one(proto, tmp_path, batch=3).data_shape == (6, 3, 4, 8)


def test_weights_of_every_kind(tmp_path):
    """An initializer, an input, a Constant, a computed tensor, and weights that old models list as inputs."""
    x, shape = value("x", (1, 3, 8, 8)), helper.make_tensor("shape", TensorProto.INT64, [4], [4, 3, 3, 3])
    conv = helper.make_node("Conv", ["x", "w"], ["y"], name="conv")
    ones = helper.make_tensor("ones", FLOAT, [4, 3, 3, 3], np.ones(108))
    protos = [
        model([conv], [x], weights=[weight("w", (4, 3, 3, 3))]),
        model([conv], [x, value("w", (4, 3, 3, 3))]),
        model([conv], [x, value("w", (4, 3, 3, 3))], weights=[weight("w", (4, 3, 3, 3))]),
        model([helper.make_node("Constant", [], ["w"], value=ones), conv], [x]),
        model([helper.make_node("ConstantOfShape", ["shape"], ["w"]), conv], [x], weights=[shape]),
    ]
    assert len({read_one(proto, tmp_path) for proto in protos}) == 1


def test_subgraphs_and_functions(tmp_path):
    """Convolutions inside If see the outer tensors; those of a model's own functions are inlined."""
    branches = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node("Conv", ["x", "w"], [f"{name}_y"], name=f"{name}_conv", pads=[pad] * 4)],
            name,
            [],
            [value(f"{name}_y", None)],
        )
        for name, pad in (("then", 0), ("else", 1))
    }
    inner = model(
        [helper.make_node("If", ["c"], ["y"], **branches)],
        [value("c", (), TensorProto.BOOL), value("x", (1, 3, 8, 8))],
        weights=[weight("w", (4, 3, 3, 3))],
    )
    uses = read_uses(save(inner, tmp_path))
    assert {use.places for use in uses} == {("then_conv",), ("else_conv",)}
    assert sorted(use.problem.out_spatial for use in uses) == [(6, 6), (8, 8)]
    function = helper.make_function(
        "own", "Block", ["x", "w"], ["y"], [helper.make_node("Conv", ["x", "w"], ["y"])], [helper.make_opsetid("", 22)]
    )
    proto = model(
        [helper.make_node("Block", ["x", "w"], ["y"], domain="own")],
        [value("x", (1, 3, 8, 8))],
        [value("y", (1, 4, 6, 6))],
        [weight("w", (4, 3, 3, 3))],
        functions=[function],
    )
    proto.opset_import.append(helper.make_opsetid("own", 1))
    assert read_one(proto, tmp_path).out_spatial == (6, 6)


def test_loops(tmp_path):
    """A body has the shapes that it declares, and those of what it scans."""
    conv = helper.make_node("Conv", ["v", "w"], ["v2"], name="conv", pads=[1, 1, 1, 1])
    turn = [value("i", (), TensorProto.INT64), value("c", (), TensorProto.BOOL)]
    weights = [weight("w", (3, 3, 3, 3))]

    def loop(shape):
        body = helper.make_graph(
            [conv, helper.make_node("Identity", ["c"], ["c2"])],
            "body",
            [*turn, value("v", shape)],
            [value("c2", (), TensorProto.BOOL), value("v2", shape)],
        )
        node = helper.make_node("Loop", ["n", "go", "x"], ["y"], body=body)
        inputs = [value("n", (), TensorProto.INT64), value("go", (), TensorProto.BOOL), value("x", (1, 3, 8, 8))]
        return model([node], inputs, weights=weights)

    body = helper.make_graph([conv], "body", [value("v", None)], [value("v2", None)])
    node = helper.make_node("Scan", ["xs"], ["ys"], body=body, num_scan_inputs=1)
    scan = model([node], [value("xs", (5, 1, 3, 8, 8))], weights=weights)
    assert read_one(scan, tmp_path) == read_one(loop((1, 3, 8, 8)), tmp_path)
    with pytest.raises(SourceError, match=r"finds no shape for its data 'v'.*declare the shape in the model"):
        read_one(loop(None), tmp_path)


def test_other_operators_of_the_same_name_are_not_ours(tmp_path):
    proto = conv_model()
    proto.graph.node.append(helper.make_node("Conv", ["y"], ["z"], domain="com.example"))
    proto.opset_import.append(helper.make_opsetid("com.example", 1))
    assert len(read_source(save(proto, tmp_path))) == 1


def test_a_wrongly_inferred_output_is_refused_only_where_it_is_read(tmp_path):
    """ONNX's inference says 7 (2 * 3 and the output padding); onnxruntime computes 6 in all."""
    proto = conv_model(
        "ConvTranspose", x=(1, 1, 3), w=(1, 1, 3), strides=[2], auto_pad="SAME_UPPER", output_padding=[1]
    )
    assert read_one(proto, tmp_path).out_spatial == (6,)
    proto.graph.node.append(helper.make_node("Relu", ["y"], ["z"]))
    proto.graph.output[0].name = "z"
    with pytest.raises(
        SourceError, match=r"infers the output shape \[1, 1, 7\].* give \[1, 1, 6\].*write explicit pads"
    ):
        read_one(proto, tmp_path)


@pytest.mark.parametrize(("domain", "op_type"), [("com.microsoft.nchwc", "Conv"), ("com.microsoft", "FusedConv")])
@pytest.mark.parametrize("command", ["build", "compile"])
def test_what_onnxruntime_has_optimized(
    command: str, domain: str, op_type: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = conv_model()
    made.graph.node[0].domain, made.graph.node[0].op_type = domain, op_type
    made.opset_import.add(domain=domain, version=1)
    source = save(made, tmp_path)
    assert cli.main([command, source, "-o", str(tmp_path / "out.so")]) != 0
    error = capsys.readouterr().err
    assert f"after its optimizations (node 'conv' is {domain}.{op_type})" in error and "ORT_ENABLE_BASIC" in error


def test_a_filter_that_a_shape_decides(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["channels"], start=1, end=2),
        helper.make_node("Concat", ["outputs", "channels", "taps"], ["shape"], axis=0),
        helper.make_node("Expand", ["half", "shape"], ["w"]),
        helper.make_node("Size", ["x"], ["size"]),
        helper.make_node("Cast", ["size"], ["number"], to=FLOAT),
        helper.make_node("Mul", ["w", "number"], ["scaled"]),
        helper.make_node("Conv", ["x", "scaled"], ["y"], "conv"),
    ]
    weights = [
        numpy_helper.from_array(np.array([4]), "outputs"),
        numpy_helper.from_array(np.array([3, 3]), "taps"),
        numpy_helper.from_array(np.full((1, 1, 1, 1), 0.5, np.float32), "half"),
    ]
    source = save(model(nodes, [value("x", ["n", 3, 8, 8])], weights=weights, opset=17), tmp_path)
    (node,) = read_model(source, batch=1, with_constants=True).nodes
    assert node.constants is not None
    np.testing.assert_array_equal(node.constants().filter, np.full((4, 3, 3, 3), 0.5 * 192))
