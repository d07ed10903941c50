"""The project's own rules: sizes, which half imports what, and that the README's commands exist."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tvmconv import cli

ROOT = Path(__file__).parents[2]
SOURCES = [
    path
    for folder in ("tvmconv", "schedules", "benchmarks", "tests")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in (".py", ".c")
]
MODULES = [path for path in SOURCES if path.suffix == ".py" and path.is_relative_to(ROOT / "tvmconv")]
RUN_TIME_HALF = (
    "errors", "problem", "ops", "signature", "cpu", "bundle", "arrays", "kernel", "registry", "reference", "fills",
    "verify", "bench", "peak", "cuda", "cuda_kernel", "cuda_measure",
)  # fmt: skip
README, CONTRIBUTING = ((ROOT / name).read_text() for name in ("README.md", "CONTRIBUTING.md"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_are_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 400


def test_the_run_time_half_leaves_the_rest_alone() -> None:
    script = "import sys; " + "; ".join(f"import tvmconv.{name}" for name in RUN_TIME_HALF) + "; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not {"tvm", "onnx", "rich", "filelock"} & set(done.stdout.split())


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_module_imports_from_the_command_line(path: Path) -> None:
    if path.is_relative_to(ROOT / "tvmconv" / "cli"):
        return
    for node in ast.walk(ast.parse(path.read_text())):
        imported = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        imported += [alias.name for alias in node.names] if isinstance(node, (ast.Import, ast.ImportFrom)) else []
        assert not any("cli" in name.split(".") for name in imported)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_is_public_has_a_docstring(path: Path) -> None:
    tree = ast.parse(path.read_text())
    public = [tree]
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            public.append(node)
        if isinstance(node, ast.ClassDef):
            public += [n for n in node.body if isinstance(n, ast.FunctionDef) and not n.name.startswith("_")]
    without = [getattr(node, "name", "the module") for node in public if not ast.get_docstring(node)]
    assert without == []


@pytest.mark.parametrize("line", re.findall(r"^    (tvmconv .*)$", README, re.MULTILINE))
def test_the_commands_in_the_readme_are_accepted(line: str) -> None:
    arguments = cli.parser().parse_args(shlex.split(line, comments=True)[1:])
    assert arguments.command in cli.COMMANDS


def test_the_readme_names_every_command_and_exit_code() -> None:
    assert all(f"    tvmconv {command} " in README for command in cli.COMMANDS)
    documented = re.findall(r"^  (\d+) ", cli.EXIT_CODES, re.MULTILINE)
    assert len(documented) == 6 and all(re.search(rf"\b{code} \w", README) for code in documented)


@pytest.mark.parametrize("target", re.findall(r"(?:`|^    )make (\w+)", README + CONTRIBUTING, re.M))
def test_the_make_targets_that_are_named_exist(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.parametrize(("path", "code"), re.findall(r"^ *```py\n *# (\S+)\n(.*?)^ *```$", CONTRIBUTING, re.M | re.S))
def test_code_that_is_quoted_stands_in_its_file(path: str, code: str) -> None:
    # The list that the block is in indents it by three columns.
    assert re.sub("^   ", "", code, flags=re.MULTILINE) in (ROOT / path).read_text()
