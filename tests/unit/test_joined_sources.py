"""Fixed convolutions of ONNX models and OpenVINO IR that add up or follow each other, as one where a bundle is built with filters."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from models import model, save, value
from near import assert_near
from onnx import NodeProto, helper, numpy_helper
from toys import entry, write_bundle

import tvmconv
from tvmconv import cli, reference
from tvmconv.building.filters import add_filters
from tvmconv.errors import BundleError, KernelNotFoundError
from tvmconv.frontends import Model, read_model
from tvmconv.reporting.page import Page, render
from tvmconv.runtime.bundle import read_bundle
from tvmconv.signature import format_signature

CHANNELS = 6


class Net:
    """Nodes, each named as the tensor that it computes, of the inputs x and z."""

    def __init__(self, rank: int = 2) -> None:
        self.rank, self.nodes, self.weights = rank, list[NodeProto](), list[onnx.TensorProto]()
        self._rng = np.random.default_rng(0)
        self.shape = (2, CHANNELS, *(7, 9, 5)[:rank])

    def node(self, op: str, inputs: str, output: str = "", **attributes: Any) -> str:
        output = output or f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs.split(), [output], output, **attributes))
        return output

    def fixed(self, *shape: int) -> str:
        array = self._rng.uniform(0.5, 1.5, shape) * self._rng.choice([-1, 1], shape) / np.sqrt(np.prod(shape[1:]))
        self.weights.append(numpy_helper.from_array(array.astype(np.float32), f"w{len(self.weights)}"))
        return self.weights[-1].name

    def conv(
        self, data: str, *taps: int, out: int = CHANNELS, inputs: int = CHANNELS, bias: bool = True, **how: Any
    ) -> str:
        taps = taps * self.rank if len(taps) == 1 else taps
        groups, dilations = how.get("group", 1), how.get("dilations", [1] * self.rank)
        pads = [(tap - 1) * step // 2 for tap, step in zip(taps, dilations, strict=True)]
        how = {"pads": pads * 2, **how} if "auto_pad" not in how else how
        given = f" {self.fixed(out)}" if bias else ""
        return self.node("Conv", f"{data} {self.fixed(out, inputs // groups, *taps)}{given}", **how)

    def norm(self, data: str, channels: int = CHANNELS) -> str:
        numbers = [self.fixed(channels) for _ in range(3)]
        self.weights.append(numpy_helper.from_array(np.full(channels, 0.7, np.float32), f"w{len(self.weights)}"))
        return self.node("BatchNormalization", " ".join([data, *numbers, self.weights[-1].name]))

    def by_channel(self, op: str, data: str) -> str:
        return self.node(op, f"{data} {self.fixed(CHANNELS, *[1] * self.rank)}")

    def add(self, *terms: str) -> str:
        total = terms[0]
        for term in terms[1:]:
            total = self.node("Add", f"{total} {term}")
        return total

    def write(self, last: str, folder: Path, kind: str = "onnx", outputs: tuple[str, ...] = ()) -> str:
        self.node("Relu", last, "y")
        given = [value(name, self.shape) for name in ("x", "z")]
        made = model(self.nodes, given, [value(name, None) for name in ("y", *outputs)], self.weights)
        path = save(made, folder)
        if kind == "onnx":
            return path
        openvino = pytest.importorskip("openvino")
        openvino.save_model(openvino.convert_model(path), folder / "model.xml", compress_to_fp16=False)
        return str(folder / "model.xml")

    def answer(self, folder: Path) -> tuple[dict[str, np.ndarray], np.ndarray]:
        onnxruntime = pytest.importorskip("onnxruntime")
        session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
        given = {each.name: self._rng.standard_normal(self.shape).astype(np.float32) for each in session.get_inputs()}
        return given, session.run(["y"], given)[0]


def diverse(net: Net) -> str:
    """The diverse-branch block, as its paper has it."""
    chain = net.norm(net.conv(net.conv("x", 1, bias=False), 3))
    averaged = net.node(
        "AveragePool",
        net.conv("x", 1, bias=False),
        kernel_shape=[3] * net.rank,
        pads=[1] * 2 * net.rank,
        count_include_pad=1,
    )
    return net.add(net.norm(net.conv("x", 3)), net.norm(net.conv("x", 1)), chain, averaged)


# What is computed of x, and how many multiplications less that is, in the words of the join.
JOINED: dict[str, tuple[Callable[[Net], str], str, int]] = {
    "repvgg": (lambda n: n.add(n.norm(n.conv("x", 3)), n.norm(n.conv("x", 1)), n.norm("x")), "3 branches, one kernel; 1.1 times", 2),
    "acnet": (lambda n: n.add(n.conv("x", 3), n.conv("x", 3, 1), n.conv("x", 1, 3)), "3 branches, one kernel; 1.7 times", 2),
    "diverse": (diverse, "4 branches, one kernel; 2.3 times", 2),
    "depthwise": (
        lambda n: n.add(*(n.norm(n.conv("x", k, group=6, strides=[2, 2])) for k in (3, 1, 3))), "3 branches, one kernel; 2.1", 2,
    ),
    "identity": (lambda n: n.add("x", n.conv("x", 3)), "2 branches, one kernel; as many", 2),
    "another": (lambda n: n.add(n.conv("x", 3), "z", n.conv("x", 3)), "2 branches, one kernel; 2 times", 2),
    "chain": (lambda n: n.conv(n.conv("x", 1, out=24, bias=False), 3, inputs=24), "maps one after the other, one kernel; 4.4", 2),
    "numbers": (
        lambda n: n.add(n.by_channel("Div", n.conv("x", 3)), n.by_channel("Sub", n.by_channel("Mul", n.conv("x", 1)))),
        "2 branches, one kernel; 1.1", 2,
    ),
    "dilated": (lambda n: n.add(n.conv("x", 3, dilations=[2, 2]), n.conv("x", 3, dilations=[2, 2])), "2 branches, one kernel; 2", 2),
    "same": (
        lambda n: n.add(*(n.conv("x", 3, auto_pad=mode) for mode in ("SAME_UPPER", "SAME_LOWER"))), "2 branches, one kernel; 2", 2,
    ),
    "sum": (lambda n: n.node("Sum", " ".join(n.conv("x", 3) for _ in range(3))), "3 branches, one kernel; 3 times", 2),
    "line": (lambda n: n.add(n.conv("x", 3), n.conv("x", 1), n.norm("x")), "3 branches, one kernel; 1.3", 1),
    "volume": (lambda n: n.add(n.conv("x", 3), n.conv("x", 1), n.norm("x")), "3 branches, one kernel; as many", 3),
}  # fmt: skip


@pytest.mark.parametrize("source", ["onnx", "openvino"])
@pytest.mark.parametrize("kind", JOINED)
def test_what_is_joined(kind: str, source: str, tmp_path: Path) -> None:
    make, said, rank = JOINED[kind]
    net = Net(rank)
    path = net.write(make(net), tmp_path, source)
    found = read_model(path, with_constants=True, join=True)
    (node,) = found.nodes
    assert node.joined.startswith(said) and len(node.serves) > 2 and node.constants is not None
    given, expected = net.answer(tmp_path)
    arrays = node.constants()
    added = given["z"] if node.residual else None
    output = reference.compute(node.problem, given["x"], arrays.filter, arrays.bias, arrays.scale, arrays.slope, added)
    assert_near(output, expected, summed=3 * CHANNELS * 9, layers=8, dtype="float32")
    assert (node.residual is not None) == (kind == "another")
    # Nothing else asks for it: kernels of bundles without filters are those of the model's layers.
    for plain in (read_model(path, with_constants=True), read_model(path, join=True)):
        assert not any(each.joined for each in plain.nodes) and len(plain.nodes) == path_convolutions(path)


@pytest.mark.parametrize("size", [7, 8])
@pytest.mark.parametrize("source", ["onnx", "openvino", "free"])
def test_strides_whose_pads_are_not_all_reached(source: str, size: int, tmp_path: Path) -> None:
    net = Net()
    net.shape = (2, CHANNELS, size, size + 1)
    path = net.write(
        net.add(*(net.conv("x", taps, strides=[2, 2]) for taps in (1, 3, 3))),
        tmp_path,
        source if source != "free" else "onnx",
    )
    if source == "free":
        made = onnx.load(path)
        for each in made.graph.input:
            each.type.tensor_type.shape.dim[2].dim_param = "h"
        path = save(made, tmp_path)
    (node,) = read_model(path, dims={"h": size} if source == "free" else None, with_constants=True, join=True).nodes
    assert node.joined.startswith("3 branches") and node.constants is not None
    given, expected = net.answer(tmp_path) if source != "free" else (None, None)
    if given is not None:
        arrays = node.constants()
        output = reference.compute(node.problem, given["x"], arrays.filter, arrays.bias, None, None, None)
        assert_near(output, expected, summed=3 * CHANNELS * 9, layers=8, dtype="float32")


@pytest.mark.parametrize("source", ["onnx", "openvino"])
def test_one_after_the_other(source: str, tmp_path: Path) -> None:
    net, last = Net(), "x"
    for _ in range(3):
        last = net.add(net.conv(last, 3), net.norm(net.conv(last, 1)), last)
    nodes = read_model(net.write(last, tmp_path, source), with_constants=True, join=True).nodes
    assert len(nodes) == 3 and all(node.joined.startswith("3 branches, one kernel") for node in nodes)
    given, expected = net.answer(tmp_path)
    output = given["x"]
    for node in nodes:
        assert node.constants is not None
        arrays = node.constants()
        output = reference.compute(node.problem, output, arrays.filter, arrays.bias, arrays.scale, arrays.slope, None)
    assert_near(output, expected, summed=3 * CHANNELS * 9, layers=8, dtype="float32")


def path_convolutions(path: str) -> int:
    return len(read_model(path, fuse=False).nodes)


def read_twice(net: Net) -> str:
    first = net.conv("x", 3)
    return net.node("Mul", f"{net.add(first, net.conv('x', 1))} {net.node('Tanh', first)}")


LEFT: dict[str, Callable[[Net], str]] = {
    "read twice": read_twice,
    "not linear": lambda n: n.add(n.node("Relu", n.conv("x", 3)), n.conv("x", 1)),
    "a bias before pads": lambda n: n.conv(n.conv("x", 1), 3),
    "narrow between": lambda n: n.conv(n.conv("x", 1, out=1, bias=False), 1, inputs=1),
    "of two values": lambda n: n.add(n.conv("x", 3), n.conv("z", 1)),
    "more multiplications": lambda n: n.add(n.conv("x", 3, 1), n.conv("x", 1, 3)),
    "pads that do not count": lambda n: n.add(
        n.conv("x", 3), n.node("AveragePool", n.conv("x", 1), kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    ),
    "an infinity": lambda n: n.add(n.conv("x", 3), n.node("Mul", f"{n.conv('x', 3)} infinity")),
    "a filter that is an input": lambda n: n.add(n.conv("x", 3), n.node("Conv", "x z", pads=[4, 4, 3, 3])),
}


@pytest.mark.parametrize("kind", LEFT)
def test_what_is_not_joined(kind: str, tmp_path: Path) -> None:
    net = Net()
    if kind == "a filter that is an input":
        net.shape = (6, 6, 7, 7)
        net.weights.append(numpy_helper.from_array(np.zeros(0, np.float32), "unused"))
    net.weights.append(numpy_helper.from_array(np.array(np.inf, np.float32), "infinity"))
    path = net.write(LEFT[kind](net), tmp_path)
    nodes = read_model(path, with_constants=True, join=True).nodes
    assert len(nodes) == path_convolutions(path) and not any(node.joined for node in nodes)


def test_a_branch_that_the_model_gives_stays(tmp_path: Path) -> None:
    net = Net()
    first = net.conv("x", 3)
    path = net.write(net.add(first, net.conv("x", 1)), tmp_path, outputs=(first,))
    assert not any(node.joined for node in read_model(path, with_constants=True, join=True).nodes)


def test_halves_are_joined_where_that_rounds_no_more(tmp_path: Path) -> None:
    """An identity beside small weights, which it would take bits from, stays."""
    for size, count in ((1.0, 1), (1e-4, 2)):
        net = Net()
        last = net.add("x", net.conv("x", 3), net.conv("x", 1))
        made = onnx.load(net.write(last, tmp_path))
        for weight in made.graph.initializer:
            array = numpy_helper.to_array(weight)
            weight.CopyFrom(numpy_helper.from_array((array * size).astype(np.float16), weight.name))
        for each in (*made.graph.input, *made.graph.output):
            each.type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
        path = save(made, tmp_path)
        nodes = read_model(path, with_constants=True, join=True).nodes
        assert len(nodes) == count
        assert all(node.constants().filter.dtype == np.float16 for node in nodes if node.constants)


def test_free_sizes_and_several_buckets(tmp_path: Path) -> None:
    net = Net()
    made = onnx.load(net.write(JOINED["repvgg"][0](net), tmp_path))
    for each in made.graph.input:
        each.type.tensor_type.shape.dim[0].dim_param = "n"
        each.type.tensor_type.shape.dim[2].dim_param = "h"
    nodes = read_model(save(made, tmp_path), dims={"n": [1, 2], "h": [7, 8]}, with_constants=True, join=True).nodes
    assert [node.problem.batch for node in nodes] == [1, 2] and all(node.joined for node in nodes)


@pytest.fixture
def joined(tmp_path: Path) -> Model:
    net = Net()
    return read_model(net.write(diverse(net), tmp_path), with_constants=True, join=True)


def bundle_of(found: Model, folder: Path) -> Path:
    write_bundle(folder, [entry(format_signature(problem)) for problem in found.problems()])
    add_filters(folder, [found])
    return folder


def test_a_bundle_says_what_was_joined(joined: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = bundle_of(joined, tmp_path / "b")
    (node,) = read_bundle(path).nodes
    assert node.joined == "4 branches, one kernel; 2.3 times fewer multiplications" and node.output == "y"
    registry = tvmconv.load(path)
    assert registry.node(node.name).joined == node.joined
    with pytest.raises(KernelNotFoundError, match=f"is a part of {node.name!r} .*which computes the tensor 'y'"):
        registry.node(node.serves[2])
    page = render(Page(read_bundle(path), [], None, 1, datetime.now(), 0.0, None, []))
    assert f"{node.name} of model.onnx: {node.joined}" in page
    cli.main(["explain", node.signature, str(path)])
    assert f"it computes {node.name} of model.onnx: 4 branches, one kernel" in capsys.readouterr().out


def test_a_build_replaces_what_was_joined_before(joined: Model, tmp_path: Path) -> None:
    path = bundle_of(joined, tmp_path / "b")
    plain = read_model(joined.source, with_constants=True)
    write_bundle(path, [entry(format_signature(each)) for each in {*joined.problems(), *plain.problems()}])
    for found in (plain, joined, plain):
        add_filters(path, [found])
        assert [node.name for node in read_bundle(path).nodes] == sorted(node.name for node in found.nodes)


@pytest.mark.parametrize(("field", "wrong"), [("joined", 3), ("serves", "conv"), ("serves", [1])])
def test_damaged_manifests(field: str, wrong: object, joined: Model, tmp_path: Path) -> None:
    path = bundle_of(joined, tmp_path / "b")
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["nodes"][0][field] = wrong
    (path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(BundleError, match=r"joined must be a text"):
        read_bundle(path)
