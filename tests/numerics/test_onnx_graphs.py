"""Random graphs of ONNX' operators, of free extents, and quantized; `python -m tests.graphs`, `tests.graphs.free` and `tests.graphs.quantized` try more."""

from __future__ import annotations

import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("tvm")
from tests.graphs import free, quantized
from tests.graphs.check import check_seed


@pytest.mark.parametrize("seed", range(4))
def test_a_graph_is_as_onnxruntime_has_it(seed: int) -> None:
    outcome, text = check_seed(seed)
    assert outcome.kind in ("right", "refused"), f"{outcome.detail}\n{text}"


@pytest.mark.parametrize("seed", (2, 4))
def test_a_network_of_free_extents_is_as_onnxruntime_has_it(seed: int) -> None:
    outcome, text = free.check_seed(seed)
    assert outcome.kind == "right", f"{outcome.detail}\n{text}"


@pytest.mark.parametrize("seed", (1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 12))))
def test_a_quantized_graph_is_as_onnxruntime_has_it(seed: int) -> None:
    outcome, text = quantized.check_seed(seed)
    assert outcome.kind == "right", f"{outcome.detail}\n{text}"
