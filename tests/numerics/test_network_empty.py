"""Tensors without elements, which slices and counts of zero leave, and what is computed of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graphs.check import difference
from models import model, save, value
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

pytest.importorskip("tvm")
from tvmconv.network.compile import build
from tvmconv.network.read.onnx.reader import read_onnx
from tvmconv.runtime.networks.network import load_network

RNG = np.random.default_rng(0)


def test_answers_are_those_of_the_reference(tmp_path: Path) -> None:
    constants = {"begin": [0], "end": [0], "axis": [1], "pads": [0, 2, 0, 1], "first": [0]}
    constants |= {"late": [5, 1], "early": [3, -1], "both": [1, 0], "steps": [1, 2], "back": [-1, 1]}
    arrays = {name: np.array(each, np.int64) for name, each in constants.items()}
    arrays |= {"none": np.empty((0, 3)), "some": RNG.standard_normal((6, 3)), "taps": np.empty((2, 0, 3)), "bias": RNG.standard_normal(3)}  # fmt: skip
    kinds = [
        ("Slice", ["x", "begin", "end", "axis"], "nothing", {}),
        ("MatMul", ["nothing", "none"], "product", {}),
        ("Add", ["product", "bias"], "y0", {}),
        ("Transpose", ["nothing"], "turned", {"perm": [1, 0]}),
        ("MatMul", ["nothing", "turned"], "y1", {}),
        ("MatMul", ["turned", "x"], "y2", {}),
        ("Concat", ["x", "nothing", "nothing"], "y3", {"axis": 1}),
        ("Pad", ["nothing", "pads"], "y4", {}),
        ("ReduceSum", ["nothing", "axis"], "y5", {}),
        ("Unsqueeze", ["nothing", "first"], "one", {}),
        ("Transpose", ["one"], "channels", {"perm": [0, 2, 1]}),
        ("Conv", ["channels", "taps"], "y6", {"pads": [1, 1]}),
        ("Relu", ["nothing"], "y7", {}),
        ("MatMul", ["x", "some"], "y8", {}),
        ("Slice", ["x", "late", "early", "both", "steps"], "y9", {}),
        ("Slice", ["x", "early", "late", "both", "back"], "y10", {}),
    ]
    nodes = [helper.make_node(kind, given, [name], **more) for kind, given, name, more in kinds]
    shapes = [(5, 3), (5, 5), (0, 6), (5, 6), (5, 3), (5, 1), (1, 2, 5), (5, 0), (5, 3), (2, 0), (0, 0)]
    ends = [value(f"y{at}", shape) for at, shape in enumerate(shapes)]
    weights = [numpy_helper.from_array(each.astype(np.float32) if each.dtype == np.float64 else each, name) for name, each in arrays.items()]  # fmt: skip
    network = model(nodes, [value("x", (5, 6))], ends, weights)
    build(read_onnx(str(save(network, tmp_path))), tmp_path / "network.so")
    x = RNG.standard_normal((5, 6)).astype(np.float32)
    found = load_network(tmp_path / "network.so")(x=x)
    for name, right in zip(found, ReferenceEvaluator(network).run(None, {"x": x}), strict=True):
        assert found[name].shape == right.shape
        assert not right.size or not difference(found[name], right), name


def test_reductions_and_writes_of_nothing(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from tvmconv.network.read.torch.reader import read_torch

    class Nothing(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: object, none: object, at: object) -> tuple[object, ...]:
            reduced = (
                none.sum(),
                none.prod(),
                none.mean(1),
                none.var(1),
                none.std(1),
                none.any(),
                none.all(),
                none.logsumexp(1),
            )
            written = x.index_add(1, at, none), x.scatter(1, at[None], 2.0), x.index_copy(1, at, none)
            return (*reduced, *written, x[:, at], none.cumsum(1), none.sort(1)[0], torch.cat([x, none], 1))

    given = torch.randn(1, 4), torch.randn(1, 0), torch.zeros(0, dtype=torch.long)
    build(read_torch(torch.export.export(Nothing(), given)), tmp_path / "network.so")
    network = load_network(tmp_path / "network.so")
    found = network(**{one.name: each.numpy() for one, each in zip(network.inputs, given, strict=True)})
    for answer, right in zip(found.values(), Nothing()(*given), strict=True):
        np.testing.assert_array_equal(answer, right.numpy())
