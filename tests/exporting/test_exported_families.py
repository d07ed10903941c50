"""Families in a library for C: any extents, in a workspace of the size that it says, by threads of its own."""

from __future__ import annotations

import ctypes
import json
import random
import subprocess
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from emulated import COMPILER, N1, emulator_of, needs_emulator
from numerics.test_family_kernels import DIRECT, FAMILIES, problems_of
from toys import compile_families

from exporting.conftest import STRICT, run
from tvmconv import fills, parse_family
from tvmconv.accuracy import difference
from tvmconv.exporting.exporter import export_c
from tvmconv.family import ProblemFamily
from tvmconv.problem import Problem

_POINTER = ctypes.c_void_p
CHOSEN = {text: name for text, name in FAMILIES.items() if "winograd" not in name and "s8" not in text}


class Call(ctypes.Structure):
    """The library's NAME_call."""

    _fields_ = (
        ("parallel_for", _POINTER),
        ("context", _POINTER),
        ("threads", ctypes.c_int),
        ("workspace", _POINTER),
        ("workspace_bytes", ctypes.c_size_t),
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a library of families alone."""
    path = tmp_path_factory.mktemp("exported")
    return export_c(compile_families(path / "b", CHOSEN), path / "library", "any", shared=True, threads="pthreads")


def extents_of(family: ProblemFamily, problem: Problem) -> npt.NDArray[np.int64]:
    """Return the extents of a call: with its pads where they are its own."""
    own: list[int] = []
    if family.pads == "?":
        ends = zip(problem.pads_end, problem.output_padding, strict=True)
        own = [*problem.pads_begin, *(end - (extra if family.op != "convolution" else 0) for end, extra in ends)]
    return np.array([problem.batch, *problem.in_spatial, *own], np.int64)


def test_any_extents_are_exact_in_the_workspace_that_is_said(folder: Path) -> None:
    library = ctypes.CDLL(str(folder / "libany.so"))
    described = {
        each["signature"]: each["function"] for each in json.loads((folder / "export.json").read_text())["families"]
    }
    assert set(described) == set(CHOSEN)
    for text, name in described.items():
        family = parse_family(text)
        sizes = {
            each: getattr(library, f"{name}_{each}")
            for each in ("workspace_bytes", "packed_workspace_bytes", "packed_bytes")
        }
        for function in sizes.values():
            function.restype = ctypes.c_size_t
        for problem in problems_of(family, random.Random(2)):
            arrays, expected = fills.exact_case(problem)
            given = list(arrays.given().values())
            extents, output = extents_of(family, problem), np.zeros(1 + family.rank, np.int64)
            assert getattr(library, f"{name}_output_extents")(_pointer(extents), _pointer(output)) == 0
            assert tuple(output) == (problem.batch, *problem.out_spatial)
            packed = np.zeros(max(sizes["packed_bytes"](), 1), np.uint8)
            assert getattr(library, f"{name}_pack")(_pointer(given[1]), _pointer(packed)) == 0
            for ending, filter_, size in (
                ("", given[1], "workspace_bytes"),
                ("_packed", packed, "packed_workspace_bytes"),
            ):
                room = np.full(sizes[size](3) + 64, 0x7F, np.uint8)
                call = Call(None, None, 3, room.ctypes.data, sizes[size](3))
                out = np.full(problem.output_shape, np.nan, expected.dtype)
                used = [_pointer(each) for each in (given[0], filter_, *given[2:], out)]
                assert getattr(library, f"{name}{ending}_with")(ctypes.byref(call), _pointer(extents), *used) == 0
                assert not difference(out, expected, "exact", problem), problem
                assert (room[-64:] == 0x7F).all()


def test_in_cpp(cpp: tuple[str, ...], folder: Path, tmp_path: Path) -> None:
    """Of arrays whose sizes extents decide, another size is an error."""
    described = {
        each["signature"]: each["function"] for each in json.loads((folder / "export.json").read_text())["families"]
    }
    own = described[DIRECT].removeprefix("any_")
    family = parse_family(DIRECT)
    problem = family.problem(1, (5, 8))
    operands = [each for each in problem.operands if each not in ("data", "filter", "residual")]
    given = "".join(f"{each}, " for each in operands)
    arrays = "".join(f"  std::vector<float> {each}(kernel::{each}_elements, 2);\n" for each in ("filter", *operands))
    residual = "added, " if "residual" in problem.operands else ""
    (tmp_path / "main.cpp").write_text(f"""\
#include <vector>
#include "any.hpp"
using kernel = tvmconv::any::{own};
int main() {{
  const kernel::extents_type extents = {{{", ".join(map(str, extents_of(family, problem)))}}};
{arrays}  std::vector<float> data({np.prod(problem.data_shape)}, 1), output({np.prod(problem.output_shape)}), plain(output.size());
  const std::vector<float> added(output.size(), 3);
  if (kernel::output_extents(extents)[1] != {problem.out_spatial[0]}) return 1;
  kernel::run(extents, data, filter, {given}{residual}plain);
  kernel{{filter}}(extents, data, {given}{residual}output, {{2}});
  if (plain != output || output[0] == 0) return 2;
  data.pop_back();
  try {{
    kernel{{filter}}(extents, data, {given}{residual}output);
  }} catch (const tvmconv::any::error &error) {{
    return error.status() == any_ERROR_ARGUMENT ? 0 : 3;
  }}
  return 4;
}}
""")
    run(*cpp, *STRICT[:4], "main.cpp", f"-I{folder}", folder / "libany.a", "-pthread", "-o", "main", cwd=tmp_path)
    run("./main", cwd=tmp_path)


def test_extents_of_no_problem_are_errors(folder: Path) -> None:
    library = ctypes.CDLL(str(folder / "libany.so"))
    described = {
        each["signature"]: each["function"] for each in json.loads((folder / "export.json").read_text())["families"]
    }
    extents_of_output = getattr(library, f"{described[DIRECT]}_output_extents")
    output = np.zeros(3, np.int64)
    for wrong in ((1, 5, 6), (1, 5, 4), (0, 5, 8), (1, -5, 8), (1, 5, 2**40)):
        assert extents_of_output(_pointer(np.array(wrong, np.int64)), _pointer(output)) != 0, wrong
    nothing = np.zeros(64, np.float32)
    too_large = np.array((1, 65_536, 65_536), np.int64)
    used = [_pointer(nothing)] * 5
    assert getattr(library, described[DIRECT])(_pointer(too_large), *used) != 0


def test_the_header_is_strict_c(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "main.c").write_text('#include "any.h"\nint main(void) { return any_kernel_count; }\n')
    run("gcc", *STRICT, "main.c", f"-I{folder}", folder / "libany.a", "-pthread", "-o", "main", cwd=tmp_path)
    run("./main", cwd=tmp_path)
    run("gcc", "smoke.c", "libany.a", "-pthread", "-lm", "-o", tmp_path / "smoke", cwd=folder)
    run(tmp_path / "smoke")


@needs_emulator
def test_a_family_for_arm_is_exact_under_an_emulator(tmp_path: Path) -> None:
    bundle = compile_families(tmp_path / "b", {DIRECT: "direct"}, N1)
    library = export_c(bundle, tmp_path / "arm", "arm")
    name = json.loads((library / "export.json").read_text())["families"][0]["function"]
    family = parse_family(DIRECT)
    problem = family.problem(2, (11, 32))
    arrays, expected = fills.exact_case(problem)
    inputs = list(arrays.given().values())
    starts = np.cumsum([0, *(each.size for each in inputs)])
    np.concatenate([each.ravel() for each in inputs]).tofile(tmp_path / "in")
    given = ", ".join(f"in + {start}" for start in starts[:-1])
    (tmp_path / "main.c").write_text(
        f'#include <stdio.h>\n#include "arm.h"\nstatic float in[{starts[-1]}], out[{expected.size}];\n'
        f"int main(void) {{\n  const int64_t extents[] = {{{', '.join(map(str, extents_of(family, problem)))}}};\n"
        f"  if (fread(in, 4, {starts[-1]}, stdin) != {starts[-1]} || {name}(extents, {given}, out)) return 1;\n"
        f"  return fwrite(out, 4, {expected.size}, stdout) != {expected.size};\n}}\n"
    )
    run(COMPILER, *STRICT, "main.c", f"-I{library}", library / "libarm.a", "-static", "-lm", "-o", "main", cwd=tmp_path)
    emulator = emulator_of(N1)
    assert emulator is not None
    with (tmp_path / "in").open("rb") as file:
        done = subprocess.run(
            [emulator.program, "-cpu", "neoverse-n1", tmp_path / "main"],
            stdin=file,
            capture_output=True,
            check=True,
            timeout=600,
        )
    assert np.array_equal(np.frombuffer(done.stdout, np.float32).reshape(expected.shape), expected)


def _pointer(array: npt.NDArray[np.generic]) -> _POINTER:
    return _POINTER(array.ctypes.data)
