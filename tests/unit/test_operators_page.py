"""docs/operators.md is what the readers' tables give."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

pytest.importorskip("onnx")
pytest.importorskip("openvino")
pytest.importorskip("torch")
pytest.importorskip("tvm")
DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_is_made_from_the_tables() -> None:
    made = runpy.run_path(str(DOCS / "operators.py"))["page"]()
    assert (DOCS / "operators.md").read_text() == made, "run .venv/bin/python docs/operators.py > docs/operators.md"
