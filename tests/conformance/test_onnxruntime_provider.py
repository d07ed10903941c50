"""The models that packages ship, in onnxruntime: with a provider they give its answers, and it computes all their convolutions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from onnxruntime_sessions import nodes_of, options
from shipped import LARGE, MODELS

import tvmconv.onnxruntime
from tvmconv.building.builder import build
from tvmconv.exporting.provider_library import export_provider

# Those without inputs of which the reader sees shapes that onnxruntime does not, in a graph of an If.
NAMES = ("vad_op15", "vad_half", *LARGE)


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in LARGE else []) for n in NAMES])
@pytest.mark.parametrize("data_format", ["NCX", "NXC"])
def test_answers(name: str, data_format: str, tmp_path: Path):
    shipped = MODELS[name]
    problems = [each.problem.with_(data_format=data_format) for each in shipped.read().nodes]
    bundle = build(problems, tmp_path / "model.bundle", math="strict", verify=False)
    given = {"shapes": shipped.options.get("shapes"), "batch": shipped.options.get("batch")}
    library = export_provider(bundle, tmp_path / "model.so")
    session = tvmconv.onnxruntime.session(shipped.path(), library, options=options(tmp_path), **given)
    alone = ort.InferenceSession(
        tvmconv.onnxruntime.with_shapes(shipped.path(), **given), providers=["CPUExecutionProvider"]
    )
    rng = np.random.default_rng(0)
    kinds = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
    rate = shipped.options.get("inputs", {}).get("sr", np.array(16000))
    feeds = {
        each.name: rng.random([n if isinstance(n, int) else 1 for n in each.shape]).astype(kinds[each.type])
        if each.type in kinds
        else np.broadcast_to(rate, each.shape).astype(np.int64)
        for each in session.get_inputs()
    }
    for answer, right in zip(session.run(None, feeds), alone.run(None, feeds), strict=True):
        # Small answers of a sigmoid differ by 2e-7 between onnxruntime's own levels of optimization, too.
        np.testing.assert_allclose(answer, right, rtol=1e-4, atol=max(1e-4 * np.abs(right).max(), 5e-7))
    ran = nodes_of(session)
    ours = [each for each in ran if "tvmconv" in each["provider"]]
    assert len(ours) == shipped.counts[0] if data_format == "NCX" else ours
    assert not any(each["op_name"] in ("Conv", "ConvTranspose") for each in ran)
