"""Exported kernels, called from C: of every algorithm, type, layout and rank, the bits that Python gets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from exporting.conftest import HERE, STRICT, run
from tvmconv import fills, load
from tvmconv.exporting.exporter import export_c


@pytest.fixture(scope="module")
def tested(spaces_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_c(spaces_bundle, tmp_path_factory.mktemp("export") / "tested", "tested", shared=True)


def _compile(tested: Path, program: Path, *flags: str, compiler: str = "gcc") -> Path:
    run(compiler, *STRICT, *flags, HERE / "runner.c", f"-I{tested}", tested / "libtested.a", "-pthread", "-o", program)
    return program


@pytest.fixture(scope="module")
def inputs(
    spaces_bundle: Path, tested: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[int, bytes]]:
    """Return a folder with the inputs of each kernel, by its number in the table; and what Python computes of them."""
    folder, answers = tmp_path_factory.mktemp("inputs"), {}
    registry = load(spaces_bundle)
    for number, signature in enumerate(sorted(registry)):
        kernel = registry[signature]
        plain = fills.random_fill(kernel.problem).given()
        with (folder / f"{number}.in").open("wb") as file:
            for array in plain.values():
                file.write(array.tobytes() + bytes(-array.nbytes % 64))
        packed = plain | {"filter": kernel.pack(plain["filter"])}
        answers[number] = b"".join(np.asarray(kernel(**given)).tobytes() for given in (plain, packed))
    return folder, answers


def test_every_kernel_gives_the_bits_that_python_gets(
    tested: Path, inputs: tuple[Path, dict[int, bytes]], tmp_path: Path
) -> None:
    folder, answers = inputs
    run(_compile(tested, tmp_path / "runner"), folder)
    wrong = [number for number, answer in answers.items() if (folder / f"{number}.out").read_bytes() != answer]
    assert not wrong
