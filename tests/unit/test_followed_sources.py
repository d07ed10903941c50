"""Operators after a convolution in OpenVINO IR and in exported programs: which its kernel fuses, and which not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from near import assert_near

from tvmconv import reference
from tvmconv.frontends import SourceNode, read_model

SHAPE = (2, 4, 6, 5)


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def computed(node: SourceNode, data: np.ndarray, residual: np.ndarray) -> np.ndarray:
    """Return what the kernel of a node computes with the model's constants."""
    assert node.constants is not None
    given = node.constants()
    added = residual if node.residual is not None else None
    return reference.compute(node.problem, data, given.filter, given.bias, given.scale, given.slope, added)


def epilogue(node: SourceNode) -> str:
    steps = "-".join(step.name for step in node.problem.epilogue)
    return f"bias {steps}".strip() if node.problem.bias else steps


@pytest.fixture(scope="module")
def ov() -> Any:
    return pytest.importorskip("openvino")


@pytest.fixture(scope="module")
def torch() -> Any:
    return pytest.importorskip("torch")


def spelled_gelu(o: Any, y: Any) -> Any:
    erf = o.erf(o.divide(y, np.float32(np.sqrt(2))))
    return o.multiply(o.multiply(y, np.float32(0.5)), o.add(erf, np.float32(1)))


# By what is fused: what a model computes of a convolution y of x, and of another tensor r; o are OpenVINO's operations.
OPENVINO: list[tuple[str, Callable[[Any, Any, Any], Any]]] = [
    ("bias relu", lambda o, y, r: o.relu(o.add(y, o.constant(normal(1, 4, 1, 1))))),
    ("bias clip", lambda o, y, r: o.clamp(o.add(o.multiply(y, normal(4, 1, 1)), normal(1, 4, 1, 1)), -0.5, 0.75)),
    ("add relu", lambda o, y, r: o.relu(o.add(r, y))),
    ("silu add", lambda o, y, r: o.add(o.swish(y), r)),
    ("silu", lambda o, y, r: o.multiply(o.sigmoid(y), y)),
    ("hardswish", lambda o, y, r: o.divide(o.multiply(y, o.clamp(o.add(y, np.float32(3)), 0, 6)), np.float32(6))),
    ("gelu add", lambda o, y, r: o.add(spelled_gelu(o, y), r)),
    ("bias relu", lambda o, y, r: o.relu(o.divide(o.subtract(normal(1, 4, 1, 1), y), normal(4, 1, 1)))),
    ("", lambda o, y, r: o.multiply(y, o.sigmoid(o.multiply(y, np.float32(1.702))))),
    ("hardswish", lambda o, y, r: o.hswish(y)),
    ("hardsigmoid", lambda o, y, r: o.hsigmoid(y)),
    ("hardsigmoid", lambda o, y, r: o.hard_sigmoid(y, np.float32(0.3), np.float32(0.4))),
    ("elu tanh", lambda o, y, r: o.tanh(o.elu(y, 0.5))),
    ("gelu", lambda o, y, r: o.gelu(y, "ERF")),
    ("gelu_tanh", lambda o, y, r: o.gelu(y, "TANH")),
    ("prelu scale", lambda o, y, r: o.multiply(o.prelu(y, normal(4)), normal(1, 4, 1, 1))),
    ("leaky", lambda o, y, r: o.prelu(y, normal(1))),
    ("", lambda o, y, r: o.add(y, y)),
    ("", lambda o, y, r: o.add(o.relu(y), y)),
    ("", lambda o, y, r: o.swish(y, np.float32(2))),
    ("", lambda o, y, r: o.add(y, o.reduce_mean(r, np.array([2, 3]), True))),
    ("", lambda o, y, r: o.multiply(y, normal(1, 1, 1, 5))),
]


@pytest.mark.parametrize(("expected", "made"), OPENVINO)
def test_openvino(expected: str, made: Any, ov: Any, tmp_path: Path) -> None:
    o = ov.opset13
    inputs = [o.parameter(SHAPE, np.float32, name=name) for name in ("x", "r")]
    conv = o.convolution(inputs[0], o.constant(normal(4, 4, 3, 3)), [1, 1], [1, 1], [1, 1], [1, 1])
    path = tmp_path / "model.xml"
    ov.save_model(ov.Model([made(o, conv, inputs[1])], inputs), path, compress_to_fp16=False)
    (node,) = read_model(str(path), with_constants=True).nodes
    assert epilogue(node) == expected.replace(" ", "-").replace("bias-", "bias ")
    values = [normal(*SHAPE), normal(*SHAPE)[::-1].copy()]
    if expected:
        answer = ov.compile_model(str(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})(values)[0]
        assert_near(computed(node, *values), answer, summed=4 * 9, layers=3, dtype="float32")
    assert len(node.serves) > 1 or not expected
    (plain,) = read_model(str(path), fuse=False).nodes
    assert not plain.problem.epilogue


def test_a_sum_of_two_is_the_later_ones_and_filters_that_are_inputs(ov: Any, tmp_path: Path) -> None:
    o = ov.opset13
    x, taps = o.parameter(SHAPE, np.float32, name="x"), o.parameter((4, 4, 1, 1), np.float32, name="taps")
    first, second = (o.convolution(x, o.constant(normal(4, 4, 1, 1)), [1, 1], [0, 0], [0, 0], [1, 1]) for _ in "ab")
    total = o.relu(o.add(first, second))
    given = o.convolution(total, taps, [1, 1], [0, 0], [0, 0], [1, 1])
    end = o.relu(o.multiply(o.add(given, o.constant(normal(4, 1, 1))), o.constant(normal(4, 1, 1))))
    path = tmp_path / "model.xml"
    ov.save_model(ov.Model([end], [x, taps]), path, compress_to_fp16=True)
    nodes = read_model(str(path)).nodes
    assert [epilogue(node) for node in nodes] == ["", "add-relu", "bias"]
    assert nodes[1].residual == nodes[0].name


def test_a_deep_model(ov: Any, tmp_path: Path) -> None:
    """More operations one after the other than Python calls within calls."""
    o = ov.opset13
    x = y = o.parameter((1, 4, 2, 2), np.float32, name="x")
    for _ in range(1100):
        y = o.floor(y)
    conv = o.convolution(y, o.constant(normal(4, 4, 1, 1)), [1, 1], [0, 0], [0, 0], [1, 1])
    path = tmp_path / "model.xml"
    ov.save_model(ov.Model([o.relu(o.add(y, conv))], [x]), path)
    (node,) = read_model(str(path)).nodes
    assert epilogue(node) == "add-relu"


def model(torch: Any, forward: Callable[[Any, Any, Any], Any]) -> Any:
    class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.up = torch.nn.Conv2d(4, 4, 3, 1, 1), torch.nn.ConvTranspose2d(4, 4, 3, 1, 1, groups=2)
            self.norm, self.slopes = torch.nn.BatchNorm2d(4), torch.nn.PReLU(4)
            self.one, self.scale = torch.nn.PReLU(), torch.nn.Parameter(torch.randn(4, 1, 1))
            self.relu = torch.nn.ReLU(inplace=True)

        def forward(self, x: Any, r: Any) -> Any:
            return forward(self, x, r)

    torch.manual_seed(0)
    made = Model().eval()
    with torch.no_grad():
        made.norm.running_mean.normal_()
        made.norm.running_var.uniform_(0.5, 2)
        made.norm.weight.normal_()
        made.slopes.weight.normal_()
    return made


def functional() -> Any:
    import torch

    return torch.nn.functional


def adds_to_what_is_read(m: Any, x: Any, r: Any) -> Any:
    s = r * 2
    s.add_(m.conv(x))
    return s


PROGRAMS: list[tuple[str, Callable[[Any, Any, Any], Any]]] = [
    ("relu", lambda m, x, r: m.relu(m.norm(m.conv(x)))),
    ("leaky add", lambda m, x, r: r + m.one(m.norm(m.up(x)))),
    ("prelu scale", lambda m, x, r: m.slopes(m.conv(x)) * m.scale),
    ("add relu", lambda m, x, r: m.relu((m.conv(x) * m.scale).add_(r))),
    ("silu", lambda m, x, r: (lambda y: y * y.sigmoid())(m.conv(x))),
    ("hardswish", lambda m, x, r: functional().hardswish(m.conv(x) + 1)),
    ("hardsigmoid", lambda m, x, r: functional().hardsigmoid(m.conv(x))),
    ("silu tanh", lambda m, x, r: functional().silu(m.conv(x)).tanh()),
    ("clip", lambda m, x, r: functional().relu6(m.conv(x))),
    ("clip", lambda m, x, r: m.conv(x).clamp(max=0.5)),
    ("elu", lambda m, x, r: functional().elu(m.conv(x), 0.5)),
    ("gelu", lambda m, x, r: functional().gelu(m.conv(x))),
    ("gelu_tanh", lambda m, x, r: functional().gelu(m.conv(x), approximate="tanh")),
    ("gelu", lambda m, x, r: (lambda y: 0.5 * y * (1 + (y / 2**0.5).erf()))(m.conv(x))),
    ("silu", lambda m, x, r: (lambda y: y / (1 + (-y).exp()))(m.conv(x))),
    ("relu", lambda m, x, r: m.relu((m.conv(x) - 1) / m.scale)),
    ("clip", lambda m, x, r: m.conv(x).clamp(-2e4, 2e4)),
    ("", lambda m, x, r: (lambda y: y * (1.702 * y).sigmoid())(m.conv(x))),
    ("", lambda m, x, r: m.conv(x) + r.double()),
    ("", lambda m, x, r: m.conv(x) + r.mean((2, 3), keepdim=True)),
    ("", lambda m, x, r: m.conv(x).add(r, alpha=2)),
    ("", lambda m, x, r: (lambda y: (y, y.relu()))(m.conv(x))),
    ("", adds_to_what_is_read),
]


# Decomposed, a BatchNorm has three results, and activations are several operations.
DECOMPOSED = [(*each, True) for each in PROGRAMS if each[0] in ("relu", "add relu", "silu", "hardswish", "gelu")]


@pytest.mark.parametrize(("expected", "forward", "decomposed"), [*((*each, False) for each in PROGRAMS), *DECOMPOSED])
def test_exported_programs(expected: str, forward: Any, decomposed: bool, torch: Any, tmp_path: Path) -> None:
    net, values = model(torch, forward), (normal(*SHAPE), normal(*SHAPE)[::-1].copy())
    given = tuple(map(torch.from_numpy, values))
    program = torch.export.export(net, given)
    torch.export.save(program.run_decompositions() if decomposed else program, tmp_path / "net.pt2")
    (node,) = read_model(str(tmp_path / "net.pt2"), with_constants=True).nodes
    steps = "-".join(step.name for step in node.problem.epilogue)
    assert steps == expected.replace(" ", "-")
    if expected:
        with torch.no_grad():
            answer = net(*given).numpy()
        assert_near(computed(node, *values), answer, summed=4 * 9, layers=3, dtype="float32")
    (plain,) = read_model(str(tmp_path / "net.pt2"), fuse=False).nodes
    assert not plain.problem.epilogue and plain.serves == (plain.name,)
