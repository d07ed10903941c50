"""The headers for C++: programs that call kernels and networks by them, and names that C++ has for something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporting.conftest import HERE, run
from tvmconv.exporting.cpp_header import network_cpp_header
from tvmconv.exporting.exporter import export_c
from tvmconv.exporting.network_header import header
from tvmconv.exporting.network_part import NetworkPart

WARNINGS = ("-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror", "-pedantic")


@pytest.fixture(scope="module")
def tested(few_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_c(few_bundle, tmp_path_factory.mktemp("cpp") / "tested", "tested")


def test_kernels(cpp: tuple[str, ...], tested: Path, tmp_path: Path) -> None:
    command = (*cpp, *WARNINGS, HERE / "kernels.cpp", f"-I{tested}", tested / "libtested.a")
    run(*command, "-pthread", "-o", tmp_path / "kernels")
    run(tmp_path / "kernels")


def test_names_that_are_words_of_cpp(cpp: tuple[str, ...], tmp_path: Path) -> None:
    names = ["class", "span", "224", "a.b", "a/b", "a_b_elements", "linux", "in", "std", "call", "options", "how", "é"]
    tensors = [{"name": each, "shape": [2, 3], "dtype": dtype} for each, dtype in zip(names, 3 * TYPES, strict=False)]
    part = NetworkPart(b"", (), {"target": "znver4", "arena_bytes": 64, "inputs": tensors, "outputs": tensors}, "")
    used = ""
    for name in ("new", "std", "tvmconv", "linux", "network"):
        (tmp_path / f"{name}.h").write_text(header(part, name, "model */"))
        (tmp_path / f"{name}.hpp").write_text(network_cpp_header(part, name))
        used += f'#include "{name}.hpp"\n'
    call = "::network::network{}.run({}, {.class_ = floats, .span_ = doubles, ._224 = truths}, {.threads = 2})"
    used += f"void use(float (&floats)[6], double (&doubles)[6], bool (&truths)[6]) {{ tvmconv{call}; }}\n"
    (tmp_path / "use.cpp").write_text(used)
    compiler, standard = cpp
    run(compiler, standard.replace("c++", "gnu++"), "-Wall", "-Werror", "-fsyntax-only", tmp_path / "use.cpp")


TYPES = ["float32", "float64", "bool", "float16", "bfloat16", "int64", "int32", "uint8"]
