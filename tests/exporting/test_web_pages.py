"""Networks for browsers, in Chromium: the page as it is written, threads of the page and workers."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from models import fixed, model, save, value
from near import assert_near
from onnx import helper

from benchmarks.browser import CHROMIUM, visit
from tvmconv import cli
from tvmconv.support.toolchain import ZIG

pytestmark = pytest.mark.skipif(
    CHROMIUM is None or find_spec(ZIG) is None, reason=f"no Chromium, or no Python package {ZIG}"
)
SHAPE = (1, 3, 12, 10)
PAGE = """
<iframe src="index.html"></iframe>
<script type="module">
  import { load } from "./model.js";
  import { loadInWorker } from "./worker.js";
  const answer = { isolated: crossOriginIsolated };
  try {
    const x = new Float32Array(360).map((_, index) => ((index * 37) % 256) / 128 - 1);
    const here = await load(undefined, { threads: 1 }), there = await loadInWorker(undefined, { threads: 3 });
    answer.here = Array.from(here.run({ x }).y);
    answer.there = Array.from((await there.run({ x })).y);
    answer.threads = [here.threads, there.threads];
    answer.refused = await there.run({ z: x }).catch((error) => `${error.name} ${error.message}`);
    const text = () => document.querySelector("iframe").contentDocument.querySelector("pre")?.textContent ?? "loading";
    while (text() === "loading") await new Promise((resolve) => setTimeout(resolve, 20));
    answer.shown = text();
  } catch (error) {
    answer.error = String(error);
  }
  await fetch("/", { method: "POST", body: JSON.stringify(answer) });
</script>
"""


def test_pages_and_workers_compute_the_network(tmp_path: Path) -> None:
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]), helper.make_node("Relu", ["c"], ["y"])]
    file = save(model(nodes, [value("x", SHAPE)], weights=[fixed("w", 4, 3, 3, 3)]), tmp_path)
    assert cli.main(["compile", file, "--format", "web", "-o", str(tmp_path / "net")]) == 0
    (tmp_path / "net" / "test.html").write_text(PAGE)
    answer = visit(tmp_path / "net", "test.html")
    assert "error" not in answer, answer["error"]
    x = ((np.arange(360) * 37) % 256 / 128 - 1).astype(np.float32).reshape(SHAPE)
    (expected,) = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    assert_near([np.array(answer["here"], np.float32).reshape(expected.shape)], [expected], 27, 1)
    assert answer["there"] == answer["here"] and answer["isolated"] and answer["threads"] == [1, 3]
    assert answer["refused"].startswith("TypeError z was given; the network takes x (1x3x12x10 float32)")
    assert "ran in" in answer["shown"] and "y: greatest of 480" in answer["shown"], answer["shown"]
