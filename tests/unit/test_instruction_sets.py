"""x86 is a folder: outside of it, code names neither it nor its features, but for a few files."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import tvmconv

pytestmark = pytest.mark.smoke
PACKAGE = Path(tvmconv.__file__).parent
_NAMES = re.compile(r"x86|avx|\bamx|[^a-z]amx_|sse\d|immintrin|_mm\d*_|ia32|[xyz]mm\d|cpuid", re.IGNORECASE)
# LLVM's names of CPUs say what a kernel is built for, on any machine.
_CPUS = re.compile(r"x86-64(-v\d)?|[a-z]+-avx512|-no-amx-\w+")
_C_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
ALLOWED = {
    # The algorithm that is called amx, and AMX's instructions in place of its loops.
    "algorithms/table.py", "algorithms/cpu/amx.py", "algorithms/cpu/amx_cost.py", "algorithms/cpu/amx_window.py", "schedules/cpu/amx.py", "lowering/cpu/rewrites/tiles.py",
    "algorithms/cpu/winograd_halves.py", "algorithms/cpu/transforms/winograd_halves_cost.py", "algorithms/cpu/transforms/winograd_halves_window.py", "schedules/cpu/winograd_halves.py",
    # What blocks of families by the algorithm that is called amx cost.
    "lowering/cpu/blocks.py",
    # Dot products of integers, by LLVM's names of the instructions.
    "schedules/cpu/dots.py",
    # A table's 256 bytes are looked up by each set's own instruction.
    "lowering/native/operators/lookup.c",
    # What AMX's tiles cost, a field of a CPU's row.
    "targets/costs.py", "targets/cost_rows.py",
    # Windows and Android's emulators are on it, and have no tiles.
    "platforms/windows/__init__.py", "platforms/windows_msvc/__init__.py", "platforms/android/__init__.py",
    # Libraries for C ask the CPU themselves.
    "exporting/header.py", "exporting/native/cpu_x86.c", "exporting/native/pool_pthreads.c", "exporting/native/runtime.c",
}  # fmt: skip


def code_of(path: Path) -> str:
    """Return a file's code without comments and docstrings."""
    text = path.read_text()
    if path.suffix != ".py":
        return _C_COMMENT.sub("", text)
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            node.body = [each for each in node.body if not _is_text(each)] or [ast.Pass()]
    return ast.unparse(tree)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def names(path: Path) -> list[str]:
    """Return what a file's code names of x86."""
    return _NAMES.findall(_CPUS.sub("", code_of(path)))


def test_x86_is_named_in_its_folder() -> None:
    folders = [each for each in PACKAGE.iterdir() if each.is_dir() and each.name != "isa"]
    files = [
        path for folder in folders for path in sorted(folder.resolve().rglob("*")) if path.suffix in (".py", ".c", ".h")
    ]
    outside = {
        str(path.relative_to(PACKAGE if path.is_relative_to(PACKAGE) else PACKAGE.parent))
        for path in files
        if names(path)
    }
    assert outside <= ALLOWED, "\n".join(sorted(outside - ALLOWED))
    assert outside == ALLOWED, f"these need no exception any more: {sorted(ALLOWED - outside)}"


def test_names_are_found_in_code_alone(tmp_path: Path) -> None:
    path = tmp_path / "some.py"
    path.write_text('"""By AVX2."""\n# avx\nTARGET = "x86-64-v3"\n')
    assert names(path) == []
    path.write_text('FEATURE = "avx512f"\n')
    assert names(path) == ["avx"]
    (path.with_suffix(".c")).write_text("/* AVX2 */\n#ifdef __x86_64__\n#include <immintrin.h>\n")
    assert names(path.with_suffix(".c")) == ["x86", "immintrin"]
