"""The project's own rules: sizes, docstrings and names."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

pytestmark = pytest.mark.smoke
ROOT = Path(__file__).parents[2]
SOURCES = [
    path
    for folder in ("tvmconv", "schedules", "benchmarks", "examples", "tests")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in (".py", ".c")
]
MODULES = [path for path in SOURCES if path.suffix == ".py" and path.is_relative_to(ROOT / "tvmconv")]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_files_are_short() -> None:
    long = [name_of(path) for path in SOURCES if len(path.read_text().splitlines()) > 400]
    assert not long, "\n".join(long)


def test_folders_are_rooms() -> None:
    held = Counter(path.parent for path in (ROOT / "tvmconv").rglob("*") if path.is_file() and path.suffix != ".pyc")
    assert not [str(folder) for folder, count in held.items() if count > 25]


def test_what_is_public_has_a_docstring() -> None:
    without = []
    for path in MODULES:
        tree = ast.parse(path.read_text())
        public = [tree]
        for node in tree.body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
                public.append(node)
            if isinstance(node, ast.ClassDef):
                public += [n for n in node.body if isinstance(n, ast.FunctionDef) and not n.name.startswith("_")]
        missing = (node for node in public if not ast.get_docstring(node))
        without += [f"{name_of(path)}: {getattr(node, 'name', 'the module')}" for node in missing]
    assert not without, "\n".join(without)


def test_caches_have_the_names_of_the_field() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    native = [path for suffix in ("h", "cuh") for path in (ROOT / "tvmconv").rglob(f"*.{suffix}")]
    spelled = re.compile(r"(first|second|third)[\s#/*]+level[\s#/*]+(cache|tlb)", re.IGNORECASE)
    assert [name_of(path) for path in (*SOURCES, *native, *pages) if spelled.search(path.read_text())] == []
