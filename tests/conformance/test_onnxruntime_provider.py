"""The models that packages ship, in onnxruntime: with a provider they give its answers, and it computes all their convolutions.

By kernels of a bundle, and as whole networks.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from near import assert_near
from onnxruntime_sessions import nodes_of, options
from shipped import LARGE, MODELS

import tvmconv.onnxruntime
from tvmconv.building.builder import build
from tvmconv.exporting.provider_library import export_provider
from tvmconv.frontends.shapes import Bucket
from tvmconv.network.compile import export_part
from tvmconv.network.passes import use_kernels
from tvmconv.network.read.onnx.partition import read_parts
from tvmconv.onnxruntime.racing import graph_of

# Those without inputs of which the reader sees shapes that onnxruntime does not, in a graph of an If.
NAMES = ("vad_op15", "vad_half", *LARGE)

NETWORKS = ("vad_openvino", "vad_sequence", "magika", *(pytest.param(name, marks=pytest.mark.slow) for name in LARGE))


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in LARGE else []) for n in NAMES])
def test_answers(name: str, tmp_path: Path):
    shipped = MODELS[name]
    problems = [each.problem for each in shipped.read().nodes]
    bundle = build(problems, tmp_path / "model.bundle", math="strict", verify=False)
    library = export_provider(bundle, tmp_path / "model.so")
    session = _answers_rightly(name, library, tmp_path)
    ran = nodes_of(session)
    ours = [each for each in ran if "tvmconv" in each["provider"]]
    assert len(ours) == shipped.counts[0]
    assert not any(each["op_name"] in ("Conv", "ConvTranspose") for each in ran)


@pytest.mark.parametrize("name", NETWORKS)
def test_networks(name: str, tmp_path: Path):
    shipped = MODELS[name]
    given = _given(name)
    parts = read_parts(shipped.path(), Bucket(given["shapes"] or {}, batch=given["batch"]))
    asked = export_provider(None, tmp_path / "graphs.so")
    networks = {
        graph_of(shipped.path(), asked, inputs=each.inputs, outputs=each.outputs, **given): [
            export_part(use_kernels(each.module, math="strict"))
        ]
        for each in parts
    }
    library = export_provider(None, tmp_path / "model.so", networks=networks)
    session = _answers_rightly(name, library, tmp_path)
    assert len([each for each in nodes_of(session) if "tvmconv" in each["provider"]]) == len(parts)


def _given(name: str) -> dict[str, Any]:
    return {each: MODELS[name].options.get(each) for each in ("shapes", "batch")}


def _answers_rightly(name: str, library: Path, folder: Path) -> ort.InferenceSession:
    shipped, given = MODELS[name], _given(name)
    session = tvmconv.onnxruntime.session(shipped.path(), library, options=options(folder), **given)
    alone = ort.InferenceSession(
        tvmconv.onnxruntime.with_shapes(shipped.path(), **given), providers=["CPUExecutionProvider"]
    )
    rng = np.random.default_rng(0)
    kinds = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
    rate = shipped.options.get("inputs", {}).get("sr", np.array(16000))
    feeds = {}
    for each in session.get_inputs():
        shape = [n if isinstance(n, int) else 1 for n in each.shape]
        if each.type in kinds:
            feeds[each.name] = rng.random(shape).astype(kinds[each.type])
        elif each.type == "tensor(int32)":  # bytes
            feeds[each.name] = rng.integers(0, 256, shape).astype(np.int32)
        else:
            feeds[each.name] = np.broadcast_to(rate, shape).astype(np.int64)
    for answer, right in zip(session.run(None, feeds), alone.run(None, feeds), strict=True):
        # Small answers of a sigmoid differ by 2e-7 between onnxruntime's own levels of optimization, too.
        assert_near(answer, right, summed=20_000, layers=100, magnitude=0.005)
    return session
