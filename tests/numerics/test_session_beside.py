"""onnxruntime's answers from a process beside the one that compiles."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from models import model, save, value
from onnx import helper

from tvmconv.frontends.shapes import Bucket

pytest.importorskip("onnxruntime")
from tvmconv.cli.networks.session_beside import Compared, SessionBeside
from tvmconv.network.read.onnx import compare as compared


def test_a_process_beside_answers_as_this_one(tmp_path: Path) -> None:
    x = np.random.default_rng(0).random((4, 5), np.float32)
    source = save(model([helper.make_node("Exp", ["x"], ["y"])], [value("x", [4, 5])], [value("y", None)]), tmp_path)
    made = Compared(source, Bucket({"x": x.shape}), (), {})
    beside = SessionBeside(made)
    found, right = beside.run({"x": x}), compared.answers(made.read(), {"x": x})
    assert found is not None and [each.tolist() for each in found] == [each.tolist() for each in right]
    assert beside.run({"x": x[0]}) is None  # it ended; whoever asks says why
    (tmp_path / "none.onnx").write_bytes(b"no model")
    assert SessionBeside(Compared(str(tmp_path / "none.onnx"), Bucket(), (), {})).run({}) is None
