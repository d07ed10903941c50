"""Random graphs of ONNX' operators; `python -m tests.graphs` tries more."""

from __future__ import annotations

import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("tvm")
from tests.graphs.check import check_seed


@pytest.mark.parametrize("seed", range(4))
def test_a_graph_is_as_onnxruntime_has_it(seed: int) -> None:
    outcome, text = check_seed(seed)
    assert outcome.kind in ("right", "refused"), f"{outcome.detail}\n{text}"
