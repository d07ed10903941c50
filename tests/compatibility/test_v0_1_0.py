"""Artefacts of version 0.1.0 (commit 51185312) for x86-64-v3, which later versions load.

Their model: Conv 3x3 with a bias, Relu, MaxPool, Conv 1x1, on integers; `answers.npz` has onnxruntime's answer. Made by that version's
`build --with-filters`, `compile`, `export-onnxruntime`, `export-c` and `tune --trials 8`, each with `--target x86-64-v3`.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tvmconv
from tvmconv.accuracy import NETWORK_ERROR, network_error
from tvmconv.runtime.bundle import read_bundle
from tvmconv.signature import parse_signature

ARTEFACTS = Path(__file__).with_name("v0.1.0")
pytestmark = pytest.mark.isa("avx2", "fma")


@pytest.fixture(scope="module")
def answers() -> Any:
    return np.load(ARTEFACTS / "answers.npz")


def test_bundle(answers: Any) -> None:
    registry = tvmconv.load(ARTEFACTS / "bundle")
    hidden = registry.node("first")(answers["x"])
    pooled = np.ascontiguousarray(hidden.reshape(1, 8, 4, 2, 4, 2).max((3, 5)))
    assert network_error(registry.node("second")(pooled), answers["y"]) <= NETWORK_ERROR
    assert {each.status for each in tvmconv.verify(ARTEFACTS / "bundle")} == {"right"}


def test_network(answers: Any) -> None:
    network = tvmconv.load_network(ARTEFACTS / "network.so")
    assert network_error(network(x=answers["x"])["y"], answers["y"]) <= NETWORK_ERROR


def test_provider(answers: Any) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    onnxruntime.register_execution_provider_library("of_v0_1_0", str(ARTEFACTS / "provider.so"))
    options = onnxruntime.SessionOptions()
    devices = [each for each in onnxruntime.get_ep_devices() if each.ep_name == "of_v0_1_0"]
    assert devices
    options.add_provider_for_devices(devices, {})
    session = onnxruntime.InferenceSession(str(ARTEFACTS / "model.onnx"), options)
    assert network_error(session.run(None, {"x": answers["x"]})[0], answers["y"]) <= NETWORK_ERROR


def test_c_archive(tmp_path: Path) -> None:
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    archive = ARTEFACTS / "c-archive"
    command = ["cc", archive / "smoke.c", f"-I{archive}", archive / "libmodel.a", "-lm", "-o", tmp_path / "smoke"]
    subprocess.run(command, check=True)
    subprocess.run([tmp_path / "smoke"], check=True)


def test_records() -> None:
    pytest.importorskip("tvm")
    from tvmconv.tuning.replay import choice_of

    records = tvmconv.Records(ARTEFACTS / "records", shipped=False)
    target = tvmconv.Target.parse("x86-64-v3")
    for entry in read_bundle(ARTEFACTS / "bundle").entries:
        record = records.best(parse_signature(entry.signature), target, "default")
        assert record is not None
        assert choice_of(parse_signature(entry.signature), target, record.candidate).algorithm == record.algorithm
