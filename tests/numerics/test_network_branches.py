"""Ifs of a model: both branches are planned, one of them runs; drawn graphs with Ifs within Ifs, beside onnxruntime."""

from __future__ import annotations

import subprocess
from itertools import product
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
import tvm
from models import fixed as integers
from models import model, save, value
from near import assert_near
from onnx import TensorProto, helper, numpy_helper
from relax_modules import computed
from tvm import relax

from tvmconv import cli
from tvmconv.errors import SourceError
from tvmconv.network.compile import build
from tvmconv.network.emit.network_plan import IF
from tvmconv.network.passes import use_kernels
from tvmconv.network.read.onnx.reader import read_onnx
from tvmconv.network.report import report
from tvmconv.runtime.networks.network import Network, load_network

ort = pytest.importorskip("onnxruntime")
SHAPE, BOOL = [1, 4, 5, 6], TensorProto.BOOL
# Integers up to this are exact in bf16.
MOST = 256
node = helper.make_node


class Drawn:
    """A random graph: what it reads of the graphs around it, its own nodes, and the bound of each tensor's numbers."""

    def __init__(self, rng: np.random.Generator, dtype: int, names: list[int]) -> None:
        self._rng, self._dtype, self._names = rng, dtype, names
        self.weights = [numpy_helper.from_array(rng.integers(-1, 2, (4, 4, 1, 1)).astype(np.float32), "w")]

    def nodes(self, known: dict[str, int], depth: int) -> tuple[list[onnx.NodeProto], dict[str, int]]:
        """Return nodes that read known tensors, and the known tensors after them; the last are of this graph."""
        made, known = [], dict(known)
        for _ in range(int(self._rng.integers(2, 5))):
            kind = self._rng.choice(["Conv", "Relu", "Neg", "Add", "Abs", "If"])
            if kind == "If" and depth:
                made += self._choice(known, depth)
                continue
            some, other = self._rng.choice(list(known), 2)
            bound = known[some] * 4 if kind == "Conv" else known[some] + (known[other] if kind == "Add" else 0)
            if bound <= MOST:
                given = {"Conv": [some, "w"], "Add": [some, other]}.get(kind, [some])
                kind = "Identity" if kind == "If" else kind
                known[name := self._name()] = bound
                made.append(node(kind, given, [name]))
        last = list(known)[-1]
        known[name := self._name()] = known[last]
        return [*made, node("Identity", [last], [name])], known

    def _choice(self, known: dict[str, int], depth: int) -> list[onnx.NodeProto]:
        """Return an If by an input, or by a sum, and its condition."""
        condition = self._name()
        if self._rng.random() < 0.5:
            asked = [node("Identity", [str(self._rng.choice(["c0", "c1"]))], [condition])]
        else:
            total, wide = self._name(), self._name()
            asked = [
                node("Cast", [str(self._rng.choice(list(known)))], [wide], to=TensorProto.FLOAT),
                node("ReduceSum", [wide], [total], keepdims=0),
                node("Greater", [total, "zero"], [condition]),
            ]
        count, branches, bounds = int(self._rng.integers(1, 3)), {}, []
        for which in ("then_branch", "else_branch"):
            nodes, after = self.nodes(known, depth - 1)
            # What is known outside, or the same twice, has to be copied.
            results = [list(after)[-1], str(self._rng.choice(list(after)))][:count]
            outputs = []
            for each in results:
                nodes.append(node("Identity", [each], [name := self._name()]))
                outputs.append(helper.make_tensor_value_info(name, self._dtype, None))
            branches[which] = helper.make_graph(nodes, which, [], outputs)
            bounds.append([after[each] for each in results])
        names = [self._name() for _ in range(count)]
        known |= dict(zip(names, map(max, *bounds), strict=True))
        return [*asked, node("If", [condition], names, **branches)]

    def _name(self) -> str:
        self._names.append(len(self._names))
        return f"t{len(self._names)}"


def drawn(seed: int, dtype: int = TensorProto.FLOAT) -> onnx.ModelProto:
    """Return a random model with Ifs, of two inputs of numbers and two that choose."""
    rng = np.random.default_rng(seed)
    graph = Drawn(rng, dtype, [])
    known = {"x": 3, "y": 3}
    nodes: list[onnx.NodeProto] = []
    while sum(each.op_type == "If" for each in nodes) < 2:
        more, known = graph.nodes(known, 2)
        nodes += more
    outputs = list(dict.fromkeys([list(known)[-1], *(each.output[0] for each in nodes if each.op_type == "If")]))
    inputs = [*(value(name, SHAPE, dtype) for name in "xy"), value("c0", [], BOOL), value("c1", [], BOOL)]
    weights = [
        helper.make_tensor("w", dtype, [4, 4, 1, 1], numpy_helper.to_array(graph.weights[0]).reshape(-1).tolist()),
        numpy_helper.from_array(np.float32(0), "zero"),
    ]
    return model(nodes, inputs, [value(each, None, dtype) for each in outputs], weights)


def compiled(proto: onnx.ModelProto, folder: Path) -> Network:
    """Return the network of a model."""
    build(read_onnx(save(proto, folder)), folder / "network.so", math="strict")
    return load_network(folder / "network.so")


def arrays_of(seed: int, choices: tuple[bool, bool]) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    numbers = {name: rng.integers(-3, 4, SHAPE).astype(np.float32) for name in "xy"}
    return numbers | {f"c{number}": np.array(each) for number, each in enumerate(choices)}


def expected(proto: onnx.ModelProto, arrays: dict[str, Any]) -> list[np.ndarray]:
    """Return onnxruntime's answers; it reads inputs that nothing needs, too."""
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {each.name: arrays[each.name] for each in session.get_inputs()})


@pytest.mark.parametrize("seed", range(6))
def test_drawn_models(seed: int, tmp_path: Path) -> None:
    proto = drawn(seed)
    network = compiled(proto, tmp_path)
    assert IF in {each["function"] for each in network.description["steps"]}
    for choices in product((False, True), repeat=2):
        arrays = arrays_of(seed, choices)
        given = {each.name: arrays[each.name] for each in network.inputs}
        for answer, right in zip(network(**given).values(), expected(proto, arrays), strict=True):
            np.testing.assert_array_equal(answer, right)


@pytest.mark.parametrize("seed", [6, 7])
def test_drawn_models_in_bf16(seed: int, tmp_path: Path) -> None:
    network = compiled(drawn(seed, TensorProto.BFLOAT16), tmp_path)
    for choices in product((False, True), repeat=2):
        arrays = arrays_of(seed, choices)
        narrow = {
            name: each.astype(ml_dtypes.bfloat16) if each.dtype != bool else each for name, each in arrays.items()
        }
        answers = network(**{each.name: narrow[each.name] for each in network.inputs}).values()
        for answer, right in zip(answers, expected(drawn(seed), arrays), strict=True):
            np.testing.assert_array_equal(answer.astype(np.float32), right)


def two_layers(outputs: int = 5) -> onnx.ModelProto:
    """Return an If of a convolution, and of two with a pool; each has weights of its own, or reads those outside."""
    one = helper.make_graph([node("Conv", ["r", "v"], ["a"])], "one", [], [value("a", None)])
    two = helper.make_graph(
        [
            node("Conv", ["r", "w"], ["b"], pads=[1, 1, 1, 1]),
            node("Relu", ["b"], ["d"]),
            node("Conv", ["d", "v2"], ["e"]),
        ],
        "two",
        [],
        [value("e", None)],
        [integers("v2", outputs, 8, 3, 3, seed=3)],
    )
    nodes = [
        node("Conv", ["x", "w0"], ["c"], pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["r"]),
        node("If", ["choice"], ["i"], "choose", then_branch=one, else_branch=two),
        node("Relu", ["i"], ["y"]),
    ]
    weights = [integers("w0", 4, 3, 3, 3), integers("v", 5, 4, 3, 3, seed=1), integers("w", 8, 4, 3, 3, seed=2)]
    inputs = [value("x", [1, 3, 8, 8]), value("choice", [1], BOOL)]
    return model(nodes, inputs, [value("y", None)], weights)


@pytest.fixture(scope="module")
def chosen(tmp_path_factory: pytest.TempPathFactory) -> Network:
    return compiled(two_layers(), tmp_path_factory.mktemp("chosen"))


def test_convolutions_in_branches_are_kernels(tmp_path: Path) -> None:
    proto = two_layers()
    module = use_kernels(read_onnx(save(proto, tmp_path)))
    rows = report(module)
    assert [row.why for row in rows] == [""] * 4
    assert any("-relu" in row.signature for row in rows if row.name.startswith("branch"))


@pytest.mark.parametrize("choice", [False, True])
def test_what_is_passed_over_takes_no_time(choice: bool, chosen: Network) -> None:
    data = np.random.default_rng(0).integers(-3, 4, (1, 3, 8, 8)).astype(np.float32)
    arrays = {"x": data, "choice": np.array([choice])}
    (answer,) = chosen(**arrays).values()
    np.testing.assert_array_equal(answer, expected(two_layers(), arrays)[0])
    ours = [each for each in chosen.operators(arrays, 0.01) if each.ours]
    assert sum(each.calls for each in ours) == (2 if choice else 3)


def choosing(condition: Any) -> tvm.IRModule:
    """Return a Relax module with an If written as such, whose branches read a value outside."""
    builder = relax.BlockBuilder()
    data = relax.Var("x", relax.TensorType((1, 2), "float32"))
    asked = relax.Var("c", relax.TensorType((), "bool"))
    with builder.function("main", [data, asked]):
        outside = builder.emit(relax.op.multiply(data, relax.const(2.0)))
        branches = [relax.SeqExpr([], each(outside)) for each in (relax.op.abs, relax.op.negative)]
        builder.emit_func_output(builder.emit(relax.If(asked if condition is None else condition, *branches)))
    return builder.finalize()


def test_an_if_of_tvms(tmp_path: Path) -> None:
    build(choosing(None), tmp_path / "network.so")
    network, data = load_network(tmp_path / "network.so"), np.float32([[1, -2]])
    for choice, right in ((True, [[2, 4]]), (False, [[-2, 4]])):
        (answer,) = network(x=data, c=np.array(choice)).values()
        assert answer.tolist() == right


def test_a_condition_that_is_fixed_leaves_one_branch(tmp_path: Path) -> None:
    build(choosing(relax.const(False, "bool")), tmp_path / "network.so")
    network, data = load_network(tmp_path / "network.so"), np.float32([[1, -2]])
    assert IF not in {each["function"] for each in network.description["steps"]}
    assert [each.tolist() for each in network(x=data, c=np.array(True)).values()] == [[[-2, 4]]]


def test_cond_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    from tvmconv.network.read.torch.reader import read_torch

    class Choosing(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = torch.nn.Linear(3, 4), torch.nn.Linear(3, 4)

        def forward(self, x: Any, asked: Any) -> Any:
            y = torch.cond(asked, lambda x: torch.relu(self.a(x)), lambda x: self.b(x), (x,))

            def inner(y: Any) -> Any:
                return torch.cond(y.sum() > 0, lambda y: y * 2, lambda y: y - 1, (y,))

            return torch.cond(x.mean() > 0, inner, lambda y: y.abs(), (y,)) + 1

    network, given = Choosing().eval(), (torch.ones(2, 3), torch.tensor(True))
    module = read_torch(torch.export.export(network, given))
    # Parameters are constants in branches, so products have kernels with what follows.
    assert [("-relu" in row.signature, row.why) for row in report(use_kernels(module))] == [(True, ""), (False, "")]
    for sign, choice in product((1, -1), (True, False)):
        data = sign * torch.tensor([[1.0, 2, 3], [4, -5, 6]])
        (answer,) = computed(module, data.numpy(), np.array(choice))
        right = network(data, torch.tensor(choice)).detach().numpy()
        assert_near(answer, right, summed=4, layers=4)


def test_branches_of_different_shapes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        SourceError, match=r"the If node 'choose' returns .*5.* or .*6.*; branches of a network must return"
    ):
        read_onnx(save(two_layers(outputs=6), tmp_path))


def test_a_library_for_c(tmp_path: Path) -> None:
    source, folder = save(two_layers(), tmp_path), tmp_path / "net"
    assert cli.main(["compile", source, "--math", "strict", "--format", "c", "-o", str(folder)]) == 0
    command = ["cc", "-I.", "smoke.c", "libnet.a", "-lm", "-pthread", "-o", "smoke"]
    subprocess.run(command, cwd=folder, check=True)
    subprocess.run(["./smoke"], cwd=folder, check=True)
