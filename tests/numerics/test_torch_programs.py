"""Random chains of PyTorch's operators; `python -m tests.programs` tries more."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("tvm")

from tests.programs.check import check_seed


@pytest.mark.parametrize("seed", range(3, 7))  # layouts and types go by it
def test_a_program_is_as_pytorch_has_it(seed: int) -> None:
    outcome, text = check_seed(seed)
    assert outcome.kind in ("right", "refused"), f"{outcome.detail}\n{text}"
