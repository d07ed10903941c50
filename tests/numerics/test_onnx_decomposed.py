"""ONNX's operators that are written as others, all in one network, compared with onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tvmconv.errors import SourceError
from tvmconv.network.compile import build
from tvmconv.network.read.onnx.reader import read_onnx
from tvmconv.runtime.networks.network import load_network

pytest.importorskip("onnxruntime")
from graphs.check import difference
from graphs.draw import answers

RNG = np.random.default_rng(0)


def array(*shape: int) -> np.ndarray:
    """Return random numbers."""
    return RNG.standard_normal(shape).astype(np.float32)


def ints(*numbers: int) -> np.ndarray:
    """Return sizes."""
    return np.array(numbers, np.int64)


WITH_ZEROS = array(6, 5) * (np.arange(6)[:, None] != 2)
# Operator, data, constants, outputs, attributes.
CASES: list[tuple[str, np.ndarray, list[np.ndarray | None], int, dict[str, Any]]] = [
    ("LpNormalization", WITH_ZEROS, [], 1, {"axis": 1}),
    ("LpNormalization", array(2, 3, 4), [], 1, {"axis": 0, "p": 1}),
    ("ReverseSequence", array(4, 3, 2), [ints(4, 2, 1)], 1, {"time_axis": 0, "batch_axis": 1}),
    ("ReverseSequence", array(3, 5), [ints(4, 2, 5)], 1, {"time_axis": 1, "batch_axis": 0}),
    ("Col2Im", array(1, 27, 9), [ints(7, 8), ints(3, 3)], 1, {"strides": [2, 2]}),
    ("Col2Im", array(2, 8, 25), [ints(5, 5), ints(2, 2)], 1, {"pads": [1, 0, 0, 1]}),
    ("Col2Im", array(1, 12, 4), [ints(6, 6), ints(2, 3)], 1, {"dilations": [2, 1], "strides": [3, 3]}),
    ("DFT", array(1, 10, 3, 2), [None, ints(2)[0]], 1, {"inverse": 1}),
    ("DFT", array(2, 10, 1), [ints(7)[0], ints(1)[0]], 1, {"onesided": 1}),
    ("DFT", array(2, 10, 1), [ints(16)[0]], 1, {}),
    ("DFT", array(2, 6, 3, 2), [None, ints(1)[0]], 1, {"inverse": 1, "onesided": 1}),
    ("DFT", array(2, 6, 3, 2), [ints(11)[0], ints(1)[0]], 1, {"inverse": 1, "onesided": 1}),
    ("DFT", array(2, 3, 6, 2), [ints(8)[0], ints(2)[0]], 1, {"inverse": 1, "onesided": 1}),
    ("STFT", array(2, 128, 1), [ints(8)[0], np.hanning(16).astype(np.float32), ints(16)[0]], 1, {}),
    ("STFT", array(1, 128), [ints(10)[0], None, ints(16)[0]], 1, {"onesided": 0}),
    ("MaxPool", array(2, 3, 9, 8), [], 2, {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1], "ceil_mode": 1}),
    ("MaxPool", array(1, 2, 7, 6), [], 2, {"kernel_shape": [3, 3], "storage_order": 1, "auto_pad": "SAME_UPPER"}),
    ("MaxPool", array(1, 2, 11), [], 2, {"kernel_shape": [3], "dilations": [2]}),
    ("MaxPool", np.round(array(1, 2, 5, 6, 7)), [], 2, {"kernel_shape": [2, 3, 2], "strides": [1, 2, 2]}),
    ("RNN", array(5, 2, 4), [array(2, 3, 4), array(2, 3, 3), array(2, 6)], 2,
     {"hidden_size": 3, "direction": "bidirectional", "activations": ["Relu", "Tanh"]}),
    ("LSTM", array(3, 2, 4), [array(1, 12, 4), array(1, 12, 3), array(1, 24), np.array([3, 3], np.int32)], 3,
     {"hidden_size": 3, "activations": ["HardSigmoid", "Softsign", "Tanh"]}),
    ("Resize", array(1, 2, 7, 3), [None, None, ints(1, 2, 3, 1)], 1,
     {"mode": "cubic", "coordinate_transformation_mode": "align_corners", "exclude_outside": 1}),
]  # fmt: skip


def written(cases: list[tuple[str, np.ndarray, list[np.ndarray | None], int, dict[str, Any]]]) -> onnx.ModelProto:
    """Return a model of cases, each of an input of its own."""
    nodes, inputs, outputs, constants = [], [], [], []
    for at, (kind, data, fixed, count, given) in enumerate(cases):
        names = [f"x{at}"]
        inputs.append(helper.make_tensor_value_info(names[0], onnx.TensorProto.FLOAT, data.shape))
        for place, each in enumerate(fixed):
            names.append("" if each is None else f"c{at}_{place}")
            if each is not None:
                constants.append(numpy_helper.from_array(each, names[-1]))
        made = [f"y{at}_{place}" for place in range(count)]
        nodes.append(helper.make_node(kind, names, made, **given))
        outputs += [helper.make_empty_tensor_value_info(name) for name in made]
    graph = helper.make_graph(nodes, "cases", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def test_answers_are_those_of_onnxruntime(tmp_path: Path) -> None:
    model = written(CASES)
    onnx.save(model, tmp_path / "model.onnx")
    build(read_onnx(str(tmp_path / "model.onnx")), tmp_path / "network.so")
    data = {f"x{at}": case[1] for at, case in enumerate(CASES)}
    right = dict(zip((each.name for each in model.graph.output), answers(model, data), strict=True))
    found = load_network(tmp_path / "network.so")(**data)
    assert {name: difference(found[name], each) for name, each in right.items()} == dict.fromkeys(right, "")


def test_places_before_negative_axes(tmp_path: Path) -> None:
    model = written([("MaxPool", array(1, 2, 5, 4), [], 2, {"kernel_shape": [3, 2], "storage_order": 1})])
    model.opset_import[0].version = 8
    onnx.save(model, tmp_path / "model.onnx")
    assert len(read_onnx(str(tmp_path / "model.onnx"))["main"].ret_ty.fields) == 2


def test_missing_bins_are_nought(tmp_path: Path) -> None:
    """Compare inverse transforms of halves that are cut or filled with NumPy: onnxruntime 1.31 errs by tenths."""
    data, given = array(2, 6, 3, 2), {"inverse": 1, "onesided": 1}
    sizes = (5, 9, 12, 14)
    model = written([("DFT", data, [ints(size)[0], ints(1)[0]], 1, given) for size in sizes])
    onnx.save(model, tmp_path / "model.onnx")
    build(read_onnx(str(tmp_path / "model.onnx")), tmp_path / "network.so")
    found = load_network(tmp_path / "network.so")(**{f"x{at}": data for at in range(len(sizes))})
    for at, size in enumerate(sizes):
        right = np.fft.irfft(data[..., 0] + 1j * data[..., 1].astype(np.complex128), size, 1)[..., None]
        assert not difference(found[f"y{at}_0"], right.astype(np.float32))


@pytest.mark.parametrize(
    ("case", "why"),
    [
        (("STFT", array(1, 64, 2), [ints(8)[0], None, ints(16)[0]], 1, {}), "takes complex numbers"),
        (("RNN", array(5, 2, 4), [array(1, 3, 4), array(1, 3, 3)], 2, {"hidden_size": 3, "activations": ["Affine"]}),
         "has the activations"),
    ],
)  # fmt: skip
def test_others_are_refused(
    case: tuple[str, np.ndarray, list[np.ndarray | None], int, dict[str, Any]], why: str, tmp_path: Path
) -> None:
    onnx.save(written([case]), tmp_path / "model.onnx")
    with pytest.raises(SourceError, match=f"the {case[0]} node 'y0_0' {why}"):
        read_onnx(str(tmp_path / "model.onnx"))
