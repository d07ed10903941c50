"""Hints that say how to install an extra, by what this package was installed from."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path

import pytest

from tvmconv import errors
from tvmconv.errors import missing_extra


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the package lie in no checkout."""
    monkeypatch.setattr(errors, "__file__", str(tmp_path / "tvmconv/errors.py"))


@pytest.mark.parametrize("name", ["tvmconv-0.1.0-py3-none-any.whl", "a checkout"])
def test_where_it_came_from(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    origin = tmp_path / name
    origin.touch()

    class Installed:
        def read_text(self, file: str) -> str:
            assert file == "direct_url.json"
            return json.dumps({"url": origin.as_uri()})

    monkeypatch.setattr(importlib.metadata, "distribution", lambda _: Installed())
    assert str(missing_extra("onnx", "onnx")).endswith(f"pip install '{origin}[onnx]'")
    origin.unlink()  # gone since
    assert str(missing_extra("onnx", "onnx")).endswith("pip install 'tvmconv[onnx]'")


def test_from_an_index(monkeypatch: pytest.MonkeyPatch) -> None:
    class Installed:
        def read_text(self, file: str) -> None:
            """Return nothing: an index leaves no such record."""

    monkeypatch.setattr(importlib.metadata, "distribution", lambda _: Installed())
    assert str(missing_extra("onnx", "onnx")).endswith("pip install 'tvmconv[onnx]'")


def test_from_a_checkout(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    assert str(missing_extra("onnx", "onnx")).endswith(f"pip install '{tmp_path}[onnx]'")
