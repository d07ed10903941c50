"""Models that have operators which no network has: their largest parts between those are networks inside onnxruntime."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from models import fixed, model, save, value
from near import assert_near
from onnx import TensorProto, helper, numpy_helper
from onnxruntime_sessions import feeds_of, options, providers_of

import tvmconv.onnxruntime
from tvmconv import cli
from tvmconv.errors import InputError, LackingOperatorsError, SourceError
from tvmconv.exporting.network_part import NetworkPart
from tvmconv.exporting.provider_library import export_provider
from tvmconv.frontends.shapes import Bucket
from tvmconv.isa import native
from tvmconv.measuring.timing import Timing
from tvmconv.network.compile import export_part
from tvmconv.network.passes import use_kernels
from tvmconv.network.read.onnx.partition import ModelPart, read_parts
from tvmconv.onnxruntime.racing import graph_of, race

pytestmark = pytest.mark.usefixtures("warnings_are_said")
X, Y = value("x", (3, 8)), value("y", (3, 4))
node = helper.make_node


Chosen = tuple[str, dict[int, list[NetworkPart]]]
W, V = fixed("w", 8, 16), fixed("v", 16, 4)


def another(
    nodes: Sequence[onnx.NodeProto],
    outputs: Sequence[onnx.ValueInfoProto],
    functions: Sequence[onnx.FunctionProto] = (),
) -> onnx.ModelProto:
    """Return a model with operators that are not ONNX's own."""
    made = model(nodes, [X], outputs, [W, V])
    made.opset_import.extend([helper.make_opsetid("com.microsoft", 1), helper.make_opsetid("mine", 1)])
    made.functions.extend(functions)
    return made


def branches(read: str, *shape: int) -> dict[str, onnx.GraphProto]:
    return {
        f"{kind}_branch": helper.make_graph([node(op, [read], [op])], op, [], [value(op, shape)])
        for kind, op in (("then", "Relu"), ("else", "Neg"))
    }


def words() -> onnx.ModelProto:
    """Texts at the front, and at the end."""
    nodes = [
        node(
            "LabelEncoder",
            ["s"],
            ["x"],
            domain="ai.onnx.ml",
            keys_strings=["a", "b"],
            values_floats=[1.0, 2.0],
            default_float=-1.0,
        ),
        node("Gemm", ["x", "w"], ["g"]),
        node("Relu", ["g"], ["r"]),
        node("MatMul", ["r", "v"], ["y"]),
        node("ArgMax", ["y"], ["i"], axis=1, keepdims=0),
        node(
            "LabelEncoder",
            ["i"],
            ["t"],
            domain="ai.onnx.ml",
            keys_int64s=[0, 1],
            values_strings=["no", "yes"],
            default_string="?",
        ),
    ]
    outputs = [Y, value("t", (3,), TensorProto.STRING)]
    made = model(nodes, [value("s", (3, 8), TensorProto.STRING)], outputs, [W, V])
    made.opset_import.append(helper.make_opsetid("ai.onnx.ml", 2))
    return made


def choosing() -> onnx.ModelProto:
    """Two parts beside a branch, with weights of both, and tensors that the branch, the later part and the caller read."""
    nodes = [
        node("Gemm", ["x", "w"], ["g"]),
        node("Cast", ["c"], ["d"], to=TensorProto.BOOL),
        node("Relu", ["g"], ["r"]),
        node("MatMul", ["r", "v"], ["a"]),
        node("If", ["d"], ["i"], **branches("g", 3, 16)),
        node("MatMul", ["i", "v"], ["m"]),
        node("Add", ["m", "a"], ["y"]),
        node("Neg", ["a"], ["z"]),
    ]
    return model(nodes, [X, value("c", ())], [Y, value("a", (3, 4)), value("z", (3, 4))], [W, V])


def looping() -> onnx.ModelProto:
    body = helper.make_graph(
        [node("Add", ["h", "h"], ["o"]), node("Identity", ["c"], ["k"])],
        "body",
        [value("n", (), TensorProto.INT64), value("c", (), TensorProto.BOOL), value("h", (3, 16))],
        [value("k", (), TensorProto.BOOL), value("o", (3, 16))],
    )
    nodes = [
        node("Gemm", ["x", "w"], ["g"]),
        node("Loop", ["trips", "", "g"], ["l"], body=body),
        node("MatMul", ["l", "v"], ["y"]),
    ]
    made = model(nodes, [X], [Y], [W, V, numpy_helper.from_array(np.array(2, np.int64), "trips")])
    # What a loop carries may change its shape, but for what the model declares.
    made.graph.value_info.append(value("l", (3, 16)))
    return made


def crossing() -> onnx.ModelProto:
    """Two ways on which what each needs of the other changes sides: no part may wait for itself by way of another."""
    nodes = [
        node("Gemm", ["x", "w"], ["a"]),
        node("QuickGelu", ["a"], ["b"], domain="com.microsoft"),
        node("MatMul", ["b", "v"], ["c"]),
        node("Neg", ["x"], ["n"]),
        node("Gemm", ["n", "w"], ["d"]),
        node("Add", ["d", "b"], ["e"]),
        node("QuickGelu", ["e"], ["f"], domain="com.microsoft"),
        node("MatMul", ["f", "v"], ["h"]),
        node("Add", ["h", "c"], ["y"]),
    ]
    return another(nodes, [Y])


def functions() -> onnx.ModelProto:
    """Functions of the model's own, one of which has an operator that no network has, which onnxruntime asks about first."""
    twice = helper.make_function(
        "mine",
        "Twice",
        ["a"],
        ["b"],
        [node("Add", ["a", "a"], ["t"]), node("QuickGelu", ["t"], ["b"], domain="com.microsoft")],
        [helper.make_opsetid("", 22), helper.make_opsetid("com.microsoft", 1)],
    )
    nodes = [
        node("Gemm", ["x", "w"], ["g"]),
        node("Twice", ["g"], ["h"], domain="mine"),
        node("HardSwish", ["h"], ["s"]),
        node("MatMul", ["s", "v"], ["y"]),
    ]
    return another(nodes, [Y], [twice])


def detector() -> onnx.ModelProto:
    """Return a network that selects boxes at the end, and reads the selected ones."""
    nodes = [
        node("Conv", ["x", "k"], ["c"], pads=[1, 1, 1, 1]),
        node("Reshape", ["c", "flat"], ["q"]),
        node("Split", ["q"], ["boxes", "scores"], axis=1, num_outputs=2),
        node("Transpose", ["boxes"], ["bt"], perm=[0, 2, 1]),
        node("NonMaxSuppression", ["bt", "scores", "most", "iou"], ["s"]),
        node("Gather", ["s", "column"], ["n"], axis=1),
        node("Gather", ["bt", "n"], ["picked"], axis=1),
    ]
    constants = [
        fixed("k", 8, 4, 3, 3),
        *(
            numpy_helper.from_array(np.array(v, np.int64), n)
            for n, v in (("flat", (1, 8, -1)), ("most", (5,)), ("column", 2))
        ),
        numpy_helper.from_array(np.array([0.5], np.float32), "iou"),
    ]
    outputs = [value("picked", None), value("s", (None, 3), TensorProto.INT64)]
    return model(nodes, [value("x", (1, 4, 6, 5))], outputs, constants)


# With the inputs and outputs of their parts.
KINDS: dict[str, tuple[Callable[[], onnx.ModelProto], list[tuple[str, str]]]] = {
    "words": (words, [("x", "y i")]),
    "choosing": (choosing, [("x", "g a z"), ("i a", "y")]),
    "looping": (looping, [("x", "g"), ("l", "y")]),
    "crossing": (crossing, [("x", "a d"), ("b", "c"), ("f c", "y")]),  # the addition alone is not worth it
    "functions": (functions, [("x", "_inlfunc_Twice_t"), ("h", "y")]),
    "detector": (detector, [("x", "scores bt")]),
}


def compiled(path: str, parts: Sequence[ModelPart], asked: Path, **given: Any) -> dict[int, list[NetworkPart]]:
    return {
        graph_of(path, asked, inputs=each.inputs, outputs=each.outputs, **given): [
            export_part(use_kernels(each.module, math="strict"))
        ]
        for each in parts
    }


@pytest.fixture(scope="module")
def chosen(asked: Path, tmp_path_factory: pytest.TempPathFactory) -> Chosen:
    """Return a model of two parts, and their networks."""
    path = save(choosing(), tmp_path_factory.mktemp("choosing"))
    return path, compiled(path, read_parts(path), asked)


def feeds_for(session: Any) -> dict[str, np.ndarray]:
    """Return small integers, and texts."""
    texts = [each for each in session.get_inputs() if each.type == "tensor(string)"]
    if not texts:
        return {name: np.asarray(each, np.float32) for name, each in feeds_of(session).items()}
    return {each.name: np.random.default_rng(0).choice(["a", "b", "c"], each.shape).astype(object) for each in texts}


def check(path: str, session: Any, **more: np.ndarray) -> None:
    feeds = feeds_for(session) | more
    alone = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    for answer, right in zip(session.run(None, feeds), alone.run(None, feeds), strict=True):
        if right.dtype.kind == "f":
            assert_near(answer, right, summed=8 + 16, layers=4)
        else:
            np.testing.assert_array_equal(answer, right)


@pytest.mark.parametrize("kind", KINDS)
def test_parts(kind: str, asked: Path, tmp_path: Path):
    make, ends = KINDS[kind]
    path = save(make(), tmp_path)
    parts = read_parts(path)
    assert [(set(each.inputs), set(each.outputs)) for each in parts] == [
        tuple(set(e.split()) for e in each) for each in ends
    ]
    library = export_provider(None, tmp_path / "p.so", networks=compiled(path, parts, asked))
    session = tvmconv.onnxruntime.session(path, library, claims="network", options=options(tmp_path))
    check(path, session)
    assert len([each for each in providers_of(session) if each.startswith("tvmconv")]) == len(parts)
    session = tvmconv.onnxruntime.session(path, library, options=options())
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: check(path, session), range(8)))


def test_branches_of_both_kinds_give_the_same_answers(chosen: Chosen, tmp_path: Path):
    """What integers give is exact, so the part after the branch has onnxruntime's answers to the bit."""
    path, networks = chosen
    library = export_provider(None, tmp_path / "p.so", networks=networks)
    session = tvmconv.onnxruntime.session(path, library, options=options())
    alone = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    for choice in (0, 1):
        feeds = feeds_for(session) | {"c": np.array(choice, np.float32)}
        list(map(np.testing.assert_array_equal, session.run(None, feeds), alone.run(None, feeds)))


def test_parts_that_are_another_models(chosen: Chosen, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    """Weights of the later part are others: the first is claimed, onnxruntime computes the rest, and says so once."""
    library = export_provider(None, tmp_path / "p.so", networks=chosen[1])
    other = choosing()
    other.graph.initializer.append(fixed("u", 16, 4, seed=3))
    other.graph.node[5].input[1] = "u"
    changed = save(other, tmp_path)
    capfd.readouterr()
    noted = options(tmp_path)
    noted.log_severity_level = 2
    session = tvmconv.onnxruntime.session(changed, library, options=noted)
    said = capfd.readouterr().err
    assert said.count("onnxruntime itself computes the part of a model that ends with") == 1
    assert "tvmconv export-onnxruntime MODEL.onnx" in said
    check(changed, session)
    assert [each[:7] for each in providers_of(session)].count("tvmconv") == 1


def test_a_part_for_another_cpu(chosen: Chosen, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    path, networks = chosen
    (first, ours), (second, (other,)) = networks.items()
    lacking = next(f for f in native().c_features if f not in other.description["features"])  # type: ignore[union-attr]
    more = {"target": "other", "features": [*other.description["features"], lacking]}
    other = replace(other, description={**other.description, **more})
    library = export_provider(None, tmp_path / "p.so", networks={first: ours, second: [other]})
    noted = options()
    noted.log_severity_level = 2
    capfd.readouterr()
    check(path, tvmconv.onnxruntime.session(path, library, options=noted))
    assert "the part of a model that ends with y: its networks are for other CPUs" in capfd.readouterr().err


def test_networks_that_may_be_claimed(chosen: Chosen, tmp_path: Path):
    path, networks = chosen
    library = export_provider(None, tmp_path / "p.so", networks=networks)
    for each in networks:
        session = tvmconv.onnxruntime.session(path, library, networks=[each], options=options(tmp_path))
        check(path, session)
        assert [each[:7] for each in providers_of(session)].count("tvmconv") == 1
    with pytest.raises(InputError, match="cannot be claimed as a network"):
        tvmconv.onnxruntime.session(path, library, networks=[], claims="network", options=options())


def test_wrong_answers_of_one_part(chosen: Chosen, tmp_path: Path):
    path, networks = chosen
    (first, right), (second, _) = networks.items()
    other = choosing()
    other.graph.initializer[1].CopyFrom(fixed("v", 16, 4, seed=3))
    wrong = export_part(use_kernels(read_parts(save(other, tmp_path))[1].module, math="strict"))
    library = export_provider(None, tmp_path / "p.so", networks={first: right, second: [wrong]})
    assert race(path, library, claims=("nothing", "network")).refused.startswith("its answers are off by")
    assert not race(path, library, claims=("nothing", "network"), networks=[first]).refused


def test_the_command_keeps_parts_that_help(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """By a clock by which all networks take 1.5 of 2 s, the first alone 3, and the second alone 1."""
    seconds = {"all": 1.5, "first": 3.0, "second": 1.0}
    turns = iter(
        [each for which in ("all", "first", "second", "second") for _ in range(5) for each in (2.0, seconds[which])]
    )
    monkeypatch.setattr("tvmconv.onnxruntime.racing.time_call", lambda *_: Timing(next(turns), 1.0, 1))
    path = save(choosing(), tmp_path)
    assert cli.main(["export-onnxruntime", path, "--math", "strict", "-o", str(tmp_path / "p.so")]) == 0
    said = capfd.readouterr().err
    assert re.search("from x to g, a, z: a network; onnxruntime computes what is between networks", said)
    assert "the network from x to g, a, z alone: nothing claimed 2000.000 ms, network claimed 3000.000 ms" in said
    assert "networks that make it slower, or answer wrong, are left out, 1 of 2" in said
    assert next(turns, None) is None
    session = tvmconv.onnxruntime.session(path, tmp_path / "p.so", options=options(tmp_path))
    check(path, session)
    assert [each[:7] for each in providers_of(session)].count("tvmconv") == 1


def test_nothing_is_worth_a_network(tmp_path: Path):
    nodes = [node("Neg", ["x"], ["n"]), node("NonZero", ["n"], ["y"])]
    path = save(model(nodes, [X], [value("y", (2, None), TensorProto.INT64)]), tmp_path)
    with pytest.raises(
        SourceError, match="networks do not support NonZero, and no part without them has a convolution or product"
    ):
        read_parts(path)


@pytest.mark.parametrize(
    "error", [SourceError("unreadable"), LackingOperatorsError("mine.Part is lacking", ["mine.Part"])]
)
def test_what_the_frontend_cannot_read_is_left_out(error: SourceError, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It names no operator of the model: the node is found by itself."""
    nodes = [node("Gemm", ["x", "w"], ["g"]), node("Tanh", ["g"], ["t"]), node("MatMul", ["t", "v"], ["y"])]
    path = save(model(nodes, [value("x", ("n", 8))], [value("y", ("n", 4))], [W, V]), tmp_path)
    from tvmconv.network.read.onnx import partition as onnx_parts

    def as_relax(made: onnx.ModelProto, source: str, free: Any) -> Any:
        if any(each.op_type == "Tanh" for each in made.graph.node):
            raise error
        return object()

    monkeypatch.setattr(onnx_parts, "as_relax", as_relax)
    parts = read_parts(path, Bucket(batch=3))
    assert [(each.inputs, each.outputs) for each in parts] == [(("x",), ("g",)), (("t",), ("y",))]


def test_what_a_part_reads_depends_on_it(asked: Path, tmp_path: Path):
    """Such a node would wait for itself."""
    nodes = [
        node("Gemm", ["x", "w"], ["g"]),
        node("QuickGelu", ["g"], ["q"], domain="com.microsoft"),
        node("MatMul", ["q", "v"], ["y"]),
    ]
    path = save(another(nodes, [Y, value("g", (3, 16))]), tmp_path)
    both = graph_of(path, asked, inputs=["x", "q"], outputs=["g", "y"])
    ends = [
        {"name": n, "shape": list(s), "dtype": "float32"}
        for n, s in (("x", (3, 8)), ("q", (3, 16)), ("g", (3, 16)), ("y", (3, 4)))
    ]
    part = export_part(use_kernels(read_parts(path)[0].module, math="strict"))
    named = replace(part, description={**part.description, "inputs": ends[:2], "outputs": ends[2:]})
    library = export_provider(None, tmp_path / "p.so", networks={both: [named]})
    with pytest.raises(InputError, match="what it reads depends on what it computes"):
        tvmconv.onnxruntime.session(path, library, claims="network", options=options())
