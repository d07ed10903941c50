"""One bundle for all conformance tests, built when the sources changed."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest
from filelock import FileLock
from light import RUN_WHOLE, light_problems

import tvmconv
from tvmconv.building.builder import build
from tvmconv.problem import Problem
from tvmconv.runtime.registry import Registry
from tvmconv.targets.target import Target
from tvmconv.tuning.records import Records

ROOT = Path(__file__).parents[2]
# Bundles of earlier sources stay in the cache while tests of another process may use them.
KEPT = 3


def source_hash() -> str:
    """Return a hash of all that decides what is compiled."""
    digest = hashlib.sha256(f"{version('apache-tvm')} {Target.parse('host').name}".encode())
    for folder in ("tvmconv", "schedules", "tuning_logs"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".c", ".jsonl"):
                digest.update(f"{path.relative_to(ROOT)}\0{len(path.read_bytes())}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


@pytest.fixture(scope="session")
def build_once(request, tmp_path_factory) -> Callable[[str, list[Problem]], Path]:
    """Build a bundle of problems, kept in pytest's cache until the sources change, for all test processes."""
    cache = Path(request.config.cache.mkdir("tvmconv-bundles"))

    def build_once(name: str, problems: list[Problem]) -> Path:
        path = cache / f"{name}-{source_hash()}.bundle"
        with FileLock(cache / f"{name}.lock"):
            if not path.exists():
                # The tests check the kernels themselves; the user's own tuning plays no part.
                records, jobs = Records(tmp_path_factory.mktemp("records")), min(len(os.sched_getaffinity(0)), 8)
                build(problems, path, math="strict", jobs=jobs, verify=False, records=records)
                by_age = sorted(cache.glob(f"{name}-*.bundle"), key=lambda folder: folder.stat().st_mtime)
                for old in by_age[:-KEPT]:
                    shutil.rmtree(old)
        return path

    return build_once


@pytest.fixture(scope="session")
def light_bundle(build_once) -> Path:
    """A bundle of the networks that are run whole."""
    return build_once("light", light_problems(RUN_WHOLE))


@pytest.fixture(scope="session")
def light_registry(light_bundle) -> Registry:
    """A registry of :func:`light_bundle`."""
    return tvmconv.load(light_bundle)
