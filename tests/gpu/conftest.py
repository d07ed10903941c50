"""Tests that need an NVIDIA GPU and a PyTorch that can use it; where one is missing they are skipped, with the reason.

Kernels are compiled here, by TVM and nvcc, or were compiled before: ``--kernels FOLDER`` names where they are.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from gpu_kernels import BUNDLE, Kernels, build_both, compile_kernels, target_of_gpu, why_not

FOLDER = "--kernels"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(FOLDER, type=Path, help="kernels compiled before, by benchmarks.gpu_prepare")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    reason = why_not(compiling=config.getoption(FOLDER) is None)
    for item in items:
        if reason and Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def kernels(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Kernels:
    """Every kernel these tests call."""
    folder: Path | None = pytestconfig.getoption(FOLDER)
    return Kernels(folder) if folder else compile_kernels(tmp_path_factory.mktemp("gpu"), target_of_gpu())


@pytest.fixture(scope="session")
def both(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle for CPUs and the GPU; where it is built here, the builder verifies it."""
    folder: Path | None = pytestconfig.getoption(FOLDER)
    return folder / BUNDLE if folder else build_both(tmp_path_factory.mktemp("gpu"), target_of_gpu())
