"""Candidates built to be measured: the code that ships, several in a library, and none that spoils the others."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import tvm

from tvmconv.errors import ReplayError
from tvmconv.lowering.compiler import Choice, schedule
from tvmconv.lowering.cpu.linker import link
from tvmconv.lowering.cpu.pipeline import PIPELINE, lower
from tvmconv.lowering.entry_points import EntryPoints
from tvmconv.measuring.measure import Check, measure
from tvmconv.measuring.race import Built
from tvmconv.signature import parse_signature
from tvmconv.targets.target import Target
from tvmconv.tuning import trial_library
from tvmconv.tuning.replay import spaces_of
from tvmconv.tuning.search import Candidate
from tvmconv.tuning.tasks import Compile

HOST = Target.parse("host")
SIGNATURE = "conv2d-n1-i16x9x8-o32x9x8-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-{}-{}-bias"
CASES = [("direct", "XIO", "f32"), ("direct", "OIX", "f32"), ("direct", "XIO", "bf16"), ("winograd4", "XIO", "f32")]


def candidates_of(problem: Any, math: str = "default") -> list[Candidate]:
    """Return the default of every sketch of every algorithm; the transforms' take a second each to compile."""
    return [default for space in spaces_of(problem, HOST, math) for default in space.defaults]


def machine_code(path: Path) -> set[str]:
    """Return the code of an object's kernels, without the addresses of what it refers to."""
    listing = subprocess.run(["objdump", "-dr", "--no-show-raw-insn", path], capture_output=True, text=True, check=True)
    functions = re.split(r"\n\n[0-9a-f]+ <(.*)>:\n", listing.stdout)
    kernels = (code for name, code in zip(functions[1::2], functions[2::2], strict=True) if "__tvm_ffi" not in name)
    lines = re.compile(r"^\s+[0-9a-f]+:\s*|[0-9a-f]+ <.*>|\.L\w+|\.rodata.*", re.MULTILINE)
    return {lines.sub("", code) for code in kernels}


@pytest.mark.parametrize(("algorithm", "filter_format", "dtype"), CASES)
def test_what_is_measured_is_the_code_that_ships(
    algorithm: str, filter_format: str, dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = parse_signature(SIGNATURE.format(filter_format, dtype))
    definition, scheduled = schedule(problem, HOST, Choice(algorithm), EntryPoints.PACKED)
    lowered = lower(scheduled.mod, definition)
    tvm.compile(lowered.module, HOST.tvm(), tir_pipeline=PIPELINE).mod.write_to_file(str(tmp_path / "ships.o"))

    def keep_object(executable: Any, path: str) -> None:
        executable.mod.write_to_file(path + ".o")
        link(executable, path)

    monkeypatch.setattr(trial_library, "link", keep_object)
    chosen = [each for each in candidates_of(problem) if each.algorithm == algorithm][:1]
    others = [each for each in candidates_of(problem) if each.algorithm != algorithm][:2]
    trial_library.compile_trials(problem, HOST, chosen, str(tmp_path / "alone.so"))
    trial_library.compile_trials(problem, HOST, [*others, *chosen], str(tmp_path / "together.so"))
    ships, alone, together = (machine_code(tmp_path / f"{n}.o") for n in ("ships", "alone.so", "together.so"))
    kernels = {code for code in alone if len(code) > 2000}
    assert kernels and kernels <= ships
    assert kernels <= together


@pytest.mark.parametrize(("filter_format", "math"), [("XIO", "default"), ("OIX", "strict")])
def test_every_candidate_of_a_library_is_right(filter_format: str, math: str, tmp_path: Path) -> None:
    problem = parse_signature(SIGNATURE.format(filter_format, "f32"))
    candidates = candidates_of(problem, math)
    built = trial_library.work(Compile(problem, HOST, tuple(candidates), str(tmp_path / "all.so")))
    assert [path.name for path in tmp_path.iterdir()] == ["all.so"]
    classes = {space.algorithm: space.numerical_class for space in spaces_of(problem, HOST)}
    for candidate, library in zip(candidates, built, strict=True):
        assert isinstance(library, Built)
        assert measure(Check(problem, classes[candidate.algorithm], library)).seconds is not None


def test_a_candidate_that_fails_leaves_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = parse_signature(SIGNATURE.format("XIO", "f32"))
    good = [each for each in candidates_of(problem, "strict") if each.algorithm == "direct"][:2]
    wrong = Candidate("direct", 99, ())
    first, error, second = trial_library.compile_trials(
        problem, HOST, [good[0], wrong, good[1]], str(tmp_path / "a.so")
    )
    assert isinstance(error, ReplayError) and isinstance(first, Built) and isinstance(second, Built)
    for library in (first, second):
        assert measure(Check(problem, "transform", library)).seconds is not None
    (alone,) = trial_library.compile_trials(problem, HOST, [wrong], str(tmp_path / "b.so"))
    assert isinstance(alone, ReplayError)
    # What fails only when all are compiled is found by compiling each alone.
    compile_module = tvm.compile

    def fails(module: tvm.IRModule, *arguments: Any, **named: Any) -> Any:
        if len(module.functions) > 1:
            raise RuntimeError("too many functions")
        return compile_module(module, *arguments, **named)

    monkeypatch.setattr(tvm, "compile", fails)
    built = trial_library.compile_trials(problem, HOST, good, str(tmp_path / "c.so"))
    in_place = [each for each in built if isinstance(each, Built)]
    assert in_place and all(measure(Check(problem, "transform", each)).seconds is not None for each in in_place)
    assert len({each.path for each in in_place}) == len(in_place)
