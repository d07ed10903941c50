"""Tests that need an NVIDIA GPU, a PyTorch that can use it, and nvcc; where one is missing they are skipped, with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpu_kernels import Kernels, why_not

WHY_NOT = why_not()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if WHY_NOT and Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=WHY_NOT))


@pytest.fixture(scope="session")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Kernels:
    """Every kernel these tests call, compiled at once on all cores."""
    return Kernels(tmp_path_factory.mktemp("gpu"))
