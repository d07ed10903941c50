"""Providers of several networks: of several models, shapes and targets; of models without convolutions, and with weights as inputs."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from models import fixed, model, save, value
from near import assert_near
from onnx import TensorProto, helper
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument
from onnxruntime_sessions import feeds_of, options, providers_of
from toys import compile_bundle

import tvmconv.onnxruntime
from tvmconv import cli
from tvmconv.errors import InputError, TargetError, UnsupportedMachineError
from tvmconv.exporting.network_part import NetworkPart
from tvmconv.exporting.provider_library import export_provider
from tvmconv.frontends import read_source
from tvmconv.frontends.shapes import Bucket
from tvmconv.isa import ISAS, native
from tvmconv.measuring.timing import Timing
from tvmconv.network.compile import export_part
from tvmconv.network.passes import use_kernels
from tvmconv.network.read.onnx.partition import read_parts
from tvmconv.network.read.onnx.reader import read_onnx
from tvmconv.onnxruntime.racing import graph_of
from tvmconv.onnxruntime.sessions import register

pytestmark = pytest.mark.usefixtures("warnings_are_said")


def linears(seed: int = 0) -> onnx.ModelProto:
    """Return a model without convolutions, of a free batch."""
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["g"]),
        helper.make_node("Relu", ["g"], ["r"]),
        helper.make_node("MatMul", ["r", "v"], ["y"]),
    ]
    weights = [fixed("w", 8, 16, seed=seed), fixed("b", 16), fixed("v", 16, 4)]
    return model(nodes, [value("x", ("n", 8))], [value("y", ("n", 4))], weights)


def convolution(ir_version: int) -> onnx.ModelProto:
    """Return a model that lists its weights among its inputs, as all files before IR 4 do."""
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]), helper.make_node("Softmax", ["c"], ["y"])]
    inputs = [value("x", (1, 4, 6, 5)), value("w", (4, 4, 3, 3))]
    made = model(nodes, inputs, [value("y", None)], [fixed("w", 4, 4, 3, 3)], opset=13)
    made.ir_version = ir_version
    return made


def expected_of(path: str, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    answers: list[np.ndarray] = ort.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, feeds)
    return answers


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str]]:
    """Return the command, with a clock by which networks are the fastest; it returns its exit code and its output."""

    def call(*arguments: object, sides: int = 3) -> tuple[int, str]:
        times = iter(([2.0] * (sides - 1) + [1.0]) * 100)
        monkeypatch.setattr("tvmconv.onnxruntime.racing.time_call", lambda *_: Timing(next(times), 1.0, 1))
        code = cli.main(["export-onnxruntime", *map(str, arguments)])
        return code, capfd.readouterr().err

    return call


def test_shapes_and_targets_of_a_model_without_convolutions(
    command: Callable[..., tuple[int, str]], tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    path, library = save(linears(), tmp_path), tmp_path / "p.so"
    other = {"x86_64": "x86-64-v3", "aarch64": "cortex-a76"}[native().machine]  # type: ignore[union-attr]
    targets = ("--target", other, "--target", "host")
    code, said = command(path, "--batch", "1", "--batch", "3", *targets, "--math", "strict", "-o", library, sides=2)
    assert code == 0
    assert "no network" not in said
    assert re.search(r"\(--batch 3\): nothing claimed 2000.000 ms, network claimed 1000.000 ms", said)
    for batch in (1, 3):
        session = tvmconv.onnxruntime.session(path, library, batch=batch, options=options(tmp_path))
        feeds = feeds_of(session)
        np.testing.assert_array_equal(session.run(None, feeds)[0], expected_of(path, feeds)[0])
        assert [each[:7] for each in providers_of(session)] == ["tvmconv"]
    capfd.readouterr()
    session = tvmconv.onnxruntime.session(path, library, batch=2)
    feeds = feeds_of(session)
    np.testing.assert_array_equal(session.run(None, feeds)[0], expected_of(path, feeds)[0])
    said = capfd.readouterr().err
    assert said.count("onnxruntime itself computes a model: its networks are of other models") == 1
    assert "tvmconv export-onnxruntime MODEL.onnx" in said


def test_models_with_the_same_inputs(command: Callable[..., tuple[int, str]], tmp_path: Path):
    """Each is found by its weights."""
    paths = []
    for seed in (1, 2):
        (tmp_path / str(seed)).mkdir()
        paths.append(save(linears(seed), tmp_path / str(seed)))
    code, _ = command(*paths, "--batch", "2", "--math", "strict", "-o", tmp_path / "p.so", sides=2)
    assert code == 0
    for path in paths:
        session = tvmconv.onnxruntime.session(path, tmp_path / "p.so", batch=2, options=options(tmp_path))
        feeds = feeds_of(session)
        np.testing.assert_array_equal(session.run(None, feeds)[0], expected_of(path, feeds)[0])
        assert [each[:7] for each in providers_of(session)] == ["tvmconv"]


def test_the_network_for_this_cpu(asked: Path, tmp_path: Path):
    """Of those for one graph the best that it runs."""
    path = save(linears(), tmp_path)
    graph = graph_of(path, asked, batch=2)
    ours = export_part(use_kernels(read_onnx(path, Bucket(batch=2)), math="strict"))
    lacking = next(f for f in native().c_features if f not in ours.description["features"])  # type: ignore[union-attr]
    more = {"target": "other", "features": [*ours.description["features"], lacking]}
    other = _renamed(export_part(use_kernels(read_onnx(path, Bucket(batch=2)), math="strict")), more)
    library = export_provider(None, tmp_path / "both.so", networks={graph: [ours, other]})
    session = tvmconv.onnxruntime.session(path, library, batch=2, claims="network", options=options(tmp_path))
    feeds = feeds_of(session)
    np.testing.assert_array_equal(session.run(None, feeds)[0], expected_of(path, feeds)[0])
    alone = export_provider(None, tmp_path / "other.so", networks={graph: [other]})
    with pytest.raises(UnsupportedMachineError, match="this CPU runs nothing of what is for other"):
        tvmconv.onnxruntime.session(path, alone, batch=2)
    (tmp_path / "conv").mkdir()
    convolutions = save(convolution(10), tmp_path / "conv")
    bundle = compile_bundle(tmp_path / "b.bundle", read_source(convolutions), quick=True)
    kernels_too = export_provider(bundle, tmp_path / "kernels.so", networks={graph: [other]})
    with pytest.raises(InputError, match="its networks are for other CPUs"):
        tvmconv.onnxruntime.session(path, kernels_too, batch=2, claims="network", options=options())


def _renamed(part: NetworkPart, more: dict[str, object]) -> NetworkPart:
    return replace(part, description={**part.description, **more})


def test_targets_of_several_instruction_sets(asked: Path, tmp_path: Path):
    path = save(linears(), tmp_path)
    part = export_part(use_kernels(read_onnx(path, Bucket(batch=2))))
    foreign = next(isa for isa in ISAS if isa is not native() and isa.cross_compilers)
    other = _renamed(part, {"target": "foreign", "features": [foreign.linux_name(each) for each in foreign.needed]})
    with pytest.raises(TargetError, match="a C library is of one instruction set"):
        export_provider(None, tmp_path / "p.so", networks={graph_of(path, asked, batch=2): [part, other]})


def test_weights_that_are_inputs_are_constants_before_ir_4(command: Callable[..., tuple[int, str]], tmp_path: Path):
    path, library = save(convolution(3), tmp_path), tmp_path / "p.so"
    code, said = command(path, "--math", "strict", "-o", library)
    assert code == 0
    assert "no network" not in said
    session = tvmconv.onnxruntime.session(path, library, options=options(tmp_path))
    feeds = {"x": feeds_of(session)["x"]}
    assert_near(session.run(None, feeds)[0], expected_of(path, feeds)[0], summed=4 * 9)
    assert [each[:7] for each in providers_of(session)] == ["tvmconv"]


def test_weights_that_callers_may_give(command: Callable[..., tuple[int, str]], tmp_path: Path):
    """onnxruntime lets callers override inputs that have defaults, which no network does: it claims parts."""
    path, library = save(convolution(8), tmp_path), tmp_path / "p.so"
    code, said = command(path, "--math", "strict", "-o", library, sides=2)
    assert code == 0
    assert "cannot be claimed as a network: a weight of the graph is an input, too, so callers may give another" in said
    session = tvmconv.onnxruntime.session(path, library, options=options())
    feeds = {"x": feeds_of(session)["x"]}
    for given in ({}, {"w": np.full((4, 4, 3, 3), 2, np.float32)}):
        assert_near(session.run(None, feeds | given)[0], expected_of(path, feeds | given)[0], summed=4 * 9)


def test_neither_convolutions_nor_a_network(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    lists = model([helper.make_node("Sort", ["x"], ["y"], domain="nobody")], [value("x", (2, 3))])
    assert cli.main(["export-onnxruntime", save(lists, tmp_path), "-o", str(tmp_path / "p.so")]) == 2
    said = capsys.readouterr().err
    assert re.search("no network: .*onnxruntime cannot read it", said)
    assert "no convolution and no network can be compiled" in said


def test_functions_that_onnxruntime_takes_apart(asked: Path, tmp_path: Path):
    """It asks again after that; the graph is the one of the first time."""
    made = linears()
    made.graph.node[1].op_type = "HardSwish"
    path = save(made, tmp_path)
    part = export_part(use_kernels(read_onnx(path, Bucket(batch=2)), math="strict"))
    library = export_provider(None, tmp_path / "p.so", networks={graph_of(path, asked, batch=2): [part]})
    session = tvmconv.onnxruntime.session(path, library, batch=2, options=options(tmp_path))
    feeds = feeds_of(session)
    assert_near(session.run(None, feeds)[0], expected_of(path, feeds)[0], summed=8 + 16, layers=3)
    assert [each[:7] for each in providers_of(session)] == ["tvmconv"]


def test_what_comes_before_an_operator_that_no_network_has(command: Callable[..., tuple[int, str]], tmp_path: Path):
    """The network has all that does not need it; the rest is onnxruntime's."""
    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["g"]),
        helper.make_node("Relu", ["g"], ["r"]),
        helper.make_node("NonZero", ["r"], ["i"]),
        helper.make_node("MatMul", ["r", "v"], ["y"]),
        helper.make_node("Add", ["y", "z"], ["s"]),
        helper.make_node("Unique", ["s"], ["u"], sorted=1),
    ]
    inputs = [value("x", (3, 8)), value("z", (3, 4))]
    outputs = [value("y", (3, 4)), value("i", (2, None), TensorProto.INT64), value("u", (None,))]
    path = save(model(nodes, inputs, outputs, [fixed("w", 8, 16), fixed("v", 16, 4)]), tmp_path)
    code, said = command(path, "--math", "strict", "-o", tmp_path / "p.so", sides=2)
    assert code == 0
    assert re.search("from x(, z)? to r, y(, s)?: a network; onnxruntime computes what is between networks", said)
    session = tvmconv.onnxruntime.session(path, tmp_path / "p.so", options=options(tmp_path))
    feeds = feeds_of(session)
    list(map(np.testing.assert_array_equal, session.run(None, feeds), expected_of(path, feeds)))
    providers = providers_of(session)
    assert len([each for each in providers if each.startswith("tvmconv")]) == 1
    assert "CPUExecutionProvider" in providers


def test_a_part_that_is_asked_for(asked: Path, tmp_path: Path):
    """Take no later question of onnxruntime's, for the rest and for subgraphs, as a refusal."""
    branches = {
        f"{kind}_branch": helper.make_graph([helper.make_node(op, ["y"], [op])], op, [], [value(op, (2, 4))])
        for kind, op in (("then", "Relu"), ("else", "Neg"))
    }
    made = linears()
    made.graph.node.extend(
        [
            helper.make_node("Cast", ["c"], ["d"], to=TensorProto.BOOL),
            helper.make_node("If", ["d"], ["i"], **branches),
            helper.make_node("HardSwish", ["i"], ["o"]),
        ]
    )
    made.graph.input.append(value("c", ()))
    made.graph.output.append(value("o", ("n", 4)))
    path = save(made, tmp_path)
    (found,) = read_parts(path, Bucket(batch=2))
    assert (found.inputs, found.outputs) == (("x",), ("y",))  # a cast is not worth it
    part = export_part(use_kernels(found.module, math="strict"))
    graph = graph_of(path, asked, batch=2, inputs=found.inputs, outputs=found.outputs)
    library = export_provider(None, tmp_path / "p.so", networks={graph: [part]})
    for claims in ("network", None):
        session = tvmconv.onnxruntime.session(path, library, batch=2, claims=claims, options=options(tmp_path))
        feeds = feeds_of(session)
        for answer, right in zip(session.run(None, feeds), expected_of(path, feeds), strict=True):
            assert_near(answer, right, summed=8 + 16, layers=3)
        assert len([each for each in providers_of(session) if each.startswith("tvmconv")]) == 1


@pytest.mark.filterwarnings("ignore:Specified 'providers'")
def test_identities_that_are_none(asked: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    """onnxruntime's class for Python raises the provider's error; before 1.32 it prints it, and goes on with the CPU provider."""
    path = save(linears(), tmp_path)
    for wrong in ("1", -1, 2**64):
        with pytest.raises(InputError, match="give the identities of graphs, unsigned integers of 64 bits"):
            tvmconv.onnxruntime.session(path, asked, networks=[wrong])  # type: ignore[list-item]
    devices = [each for each in ort.get_ep_devices() if each.ep_name == register(asked)][:1]
    for text in ("1,", ",1", "one", "1 2", "1,2x", "-1", str(2**64)):
        made = options()
        made.add_provider_for_devices(devices, {"networks": text})
        said = ""
        try:
            ort.InferenceSession(path, made)
        except InvalidArgument as error:
            said = str(error)
        right = f"INVALID_ARGUMENT : tvmconv: the option networks is '{text}'; allowed: identities of graphs, numbers"
        assert right in said + capfd.readouterr().out
    tvmconv.onnxruntime.session(path, asked, networks=[2**64 - 1, 0], options=options())
    assert "INVALID_ARGUMENT" not in capfd.readouterr().out


def test_graphs_of_free_shapes_are_others(asked: Path, tmp_path: Path):
    """Names of dimensions do not count."""
    path, renamed = save(linears(), tmp_path), linears()
    renamed.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    renamed.graph.output[0].type.tensor_type.ClearField("shape")
    (tmp_path / "renamed").mkdir()
    free = graph_of(path, asked)
    assert free == graph_of(save(renamed, tmp_path / "renamed"), asked)
    assert len({free, graph_of(path, asked, batch=1), graph_of(path, asked, batch=2)}) == 3


def test_graphs_that_have_no_identity(asked: Path, tmp_path: Path):
    """With graphs within, whose own are nobody's."""
    branches = {
        f"{kind}_branch": helper.make_graph([helper.make_node(op, ["x"], [op])], op, [], [value(op, (2, 3))])
        for kind, op in (("then", "Relu"), ("else", "Neg"))
    }
    nodes = [
        helper.make_node("Cast", ["z"], ["c"], to=TensorProto.BOOL),
        helper.make_node("If", ["c"], ["y"], **branches),
    ]
    choosing = model(nodes, [value("x", (2, 3)), value("z", ())], [value("y", (2, 3))])
    with pytest.raises(InputError, match="subgraphs"):
        graph_of(save(choosing, tmp_path), asked)
