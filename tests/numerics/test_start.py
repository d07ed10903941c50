"""`benchmarks.start`: processes that answer, their memory, and answers that are wrong or missing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("tvm")
onnxruntime = pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from benchmarks import start  # noqa: E402
from benchmarks.zoo_contenders import EXPECTED  # noqa: E402
from tvmconv import cli  # noqa: E402
from tvmconv.errors import BuildError, VerificationError  # noqa: E402


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return what contenders need: a model of one convolution, compiled, its input and its answer."""
    path, rng = tmp_path_factory.mktemp("start"), np.random.default_rng(0)
    filter_ = numpy_helper.from_array(rng.standard_normal((8, 8, 3, 3)).astype(np.float32), "filter")
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 8, 9, 9)) for name in ("x", "y")]
    node = helper.make_node("Conv", ["x", "filter"], ["y"], pads=[1, 1, 1, 1])
    graph = helper.make_graph([node], "one", ends[:1], ends[1:], [filter_])
    model = path / start.MODEL
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), model)
    given = rng.standard_normal((1, 8, 9, 9)).astype(np.float32)
    np.save(path / "input.npy", given)
    np.savez(path / EXPECTED, *onnxruntime.InferenceSession(str(model)).run(None, {"x": given}))
    assert cli.main(["compile", str(model), "-o", str(path / "network.so")]) == 0
    return path


def test_each_contender_answers_in_processes_of_its_own(folder: Path) -> None:
    found = start.measured(folder, ["tvmconv", "onnxruntime"], 1, 1)
    for each in found.values():
        assert each.seconds > 0
        assert each.peak >= each.resident > each.second > 1  # MiB: what is of files, others have, too
    assert [*found] == ["tvmconv", "onnxruntime"]


def test_a_wrong_answer_is_an_error(folder: Path, tmp_path: Path) -> None:
    for each in folder.iterdir():
        (tmp_path / each.name).symlink_to(each)
    (tmp_path / "input.npy").unlink()
    np.save(tmp_path / "input.npy", np.load(folder / "input.npy") + 1)
    with pytest.raises(VerificationError, match="onnxruntime: wrong answer"):
        start.measured(tmp_path, ["onnxruntime"], 1, 1)


def test_a_process_that_ends_without_an_answer_is_an_error(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "network.so").write_bytes((folder / "network.so").read_bytes()[:-9])
    (tmp_path / "input.npy").symlink_to(folder / "input.npy")
    with pytest.raises(BuildError, match="tvmconv ended without an answer, status 1"):
        start.measured(tmp_path, ["tvmconv"], 1, 1)
