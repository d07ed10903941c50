"""Real models compiled whole, compared with onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from shipped import MODELS

from tvmconv.epilogue import format_epilogue
from tvmconv.frontends.shapes import Bucket
from tvmconv.network.compile import export
from tvmconv.network.passes import use_kernels
from tvmconv.network.read.onnx.reader import fix_shapes, read_onnx
from tvmconv.network.report import report
from tvmconv.runtime.networks.network import load_network
from tvmconv.signature import parse_signature

onnxruntime = pytest.importorskip("onnxruntime")
# Convolutions by their epilogues, where a network has others than a bundle: additions are theirs, and filters are joined.
EPILOGUES = {
    "classifier": {"": 3},
    "detector": {"relu": 11, "add": 2, "add-relu": 1},
    "yolov8n": {"silu": 47, "add-silu": 4, "": 11},
}


# `pytest -m slow tests/conformance` runs it after a change to the frontends or to tvmconv/network: it takes minutes.
@pytest.mark.slow
@pytest.mark.parametrize("name", ["classifier", "detector", "yolov8n"])
def test_a_shipped_network_compiled_whole_is_right(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    shipped = MODELS[name]
    path, bucket = shipped.path(), Bucket(shipped.options["shapes"])
    module = use_kernels(read_onnx(path, bucket))
    rows = report(module)
    assert not any(row.why for row in rows)
    kernels = [parse_signature(row.signature) for row in rows]
    epilogues = [format_epilogue(problem.epilogue) for problem in kernels if problem.rank == 2]
    assert {text: epilogues.count(text) for text in epilogues} == {**shipped.epilogues, **EPILOGUES[name]}
    export(module, tmp_path / "network.so")
    network = load_network(tmp_path / "network.so")
    data = np.random.default_rng(0).standard_normal(network.inputs[0].shape).astype(np.float32)
    session = onnxruntime.InferenceSession(
        fix_shapes(path, bucket).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    expected = session.run(None, {network.inputs[0].name: data})
    for answer, right in zip(network(**{network.inputs[0].name: data}).values(), expected, strict=True):
        assert np.abs(answer - right).max() <= 1e-5 * np.abs(right).max() + 1e-6
