"""Candidates built to be measured: the code that ships, several in a library, and none that spoils the others."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from emulated import N1, emulator_of, needs_emulator

from tvmconv import fills
from tvmconv.errors import ReplayError
from tvmconv.lowering.common.entry_points import EntryPoints
from tvmconv.lowering.compiler import Choice, schedule
from tvmconv.lowering.cpu.lowering import lower
from tvmconv.lowering.cpu.passes import PIPELINE
from tvmconv.measuring.measure import Check, Measured, measure
from tvmconv.measuring.race import Built
from tvmconv.signature import parse_signature
from tvmconv.targets.target import Target
from tvmconv.tuning import trial_library
from tvmconv.tuning.evaluate import TOGETHER, Evaluator
from tvmconv.tuning.replay import spaces_of
from tvmconv.tuning.search import Candidate
from tvmconv.tuning.tasks import Compile, CompiledPart

HOST = Target.parse("host")
SIGNATURE = "conv2d-n1-i16x9x8-o32x9x8-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-{}-{}-bias"
CASES = [("direct", "XIO", "f32"), ("direct", "OIX", "f32"), ("direct", "XIO", "bf16"), ("winograd4", "XIO", "f32")]


def candidates_of(problem: Any, math: str = "default") -> list[Candidate]:
    """Return the default of every sketch of every algorithm; the transforms' take a second each to compile."""
    return [default for space in spaces_of(problem, HOST, math) for default in space.defaults]


def machine_code(path: Path) -> set[str]:
    """Return the code of an object's kernels, without addresses and padding."""
    listing = subprocess.run(["objdump", "-dr", "--no-show-raw-insn", path], capture_output=True, text=True, check=True)
    functions = re.split(r"\n\n[0-9a-f]+ <(.*)>:\n", listing.stdout)
    kernels = (code for name, code in zip(functions[1::2], functions[2::2], strict=True) if "__tvm_ffi" not in name)
    lines = re.compile(
        r"^\s+[0-9a-f]+:\s*|[0-9a-f]+ <.*>|\.L\w+|\.rodata.*|.*\bnop[wl]?\b.*|Disassembly of .*", re.MULTILINE
    )
    return {lines.sub("", code).strip() for code in kernels}


@pytest.mark.parametrize(("algorithm", "filter_format", "dtype"), CASES)
def test_what_is_measured_is_the_code_that_ships(
    algorithm: str, filter_format: str, dtype: str, tmp_path: Path
) -> None:
    problem = parse_signature(SIGNATURE.format(filter_format, dtype))
    definition, scheduled = schedule(problem, HOST, Choice(algorithm), EntryPoints.PACKED)
    lowered = lower(scheduled.mod, definition)
    tvm.compile(lowered.module, HOST.tvm(), tir_pipeline=PIPELINE).mod.write_to_file(str(tmp_path / "ships.o"))

    chosen = next(each for each in candidates_of(problem) if each.algorithm == algorithm)
    part = trial_library.work(Compile(problem, HOST, chosen, str(tmp_path), 7))
    assert isinstance(part, CompiledPart) and (part.pack is None) == (part.built.packed is None)
    ships = machine_code(tmp_path / "ships.o")
    measured = {code for each in (part.kernel, part.pack) if each for code in machine_code(Path(each))}
    kernels = {code for code in measured if len(code) > 2000}
    assert kernels and kernels <= ships


@pytest.fixture
def evaluator() -> Iterator[Evaluator]:
    """What builds in this process, and measures nothing."""
    with Evaluator(jobs=1, threads=1, work=trial_library.work, measure=measure) as made:
        yield made


@pytest.mark.parametrize(("filter_format", "math"), [("XIO", "default"), ("OIX", "strict")])
def test_every_candidate_of_a_turn_is_right(evaluator: Evaluator, filter_format: str, math: str) -> None:
    problem = parse_signature(SIGNATURE.format(filter_format, "f32"))
    candidates = candidates_of(problem, math)
    built = evaluator.build(problem, HOST, candidates)
    libraries = [each for each in built if isinstance(each, Built)]
    assert len(libraries) == len(candidates) <= TOGETHER and len({each.path for each in libraries}) == 1
    classes = {space.algorithm: space.numerical_class for space in spaces_of(problem, HOST)}
    for candidate, library in zip(candidates, libraries, strict=True):
        assert measure(Check(problem, classes[candidate.algorithm], library)).seconds is not None
        assert measure(Check(problem, classes[candidate.algorithm], library, cold_bytes=2**20)).seconds is not None
    # The filters of most lie in one of few ways.
    packing = [each.pack for each in libraries if each.packed]
    assert len({*packing}) < len(packing) or math == "strict"


class Idle(Built):
    """A library that writes nothing."""

    def call(self, arrays: Any, cold_bytes: int = 0) -> Callable[[], None]:
        """Return a call that does nothing."""
        return lambda: None


@pytest.mark.parametrize("types", ["f32", "bf16", "u8s8u8-zx128-scale-q_0.1_128", "s8s8s32"])
def test_an_output_that_is_not_written_is_wrong(evaluator: Evaluator, types: str) -> None:
    problem = parse_signature(SIGNATURE.format("XIO", types).replace("-bias", ""))
    (library,) = evaluator.build(problem, HOST, [candidates_of(problem, "strict")[0]])
    assert isinstance(library, Built)
    assert measure(Check(problem, "exact", library)).seconds is not None
    idle = measure(Check(problem, "exact", Idle(library.path)))
    assert isinstance(idle, Measured) and "differ" in idle.wrong


def test_a_candidate_that_fails_leaves_the_others(evaluator: Evaluator) -> None:
    problem = parse_signature(SIGNATURE.format("XIO", "f32"))
    good = [each for each in candidates_of(problem, "strict") if each.algorithm == "direct"][:2]
    wrong = Candidate("direct", 99, ())
    first, error, second = evaluator.build(problem, HOST, [good[0], wrong, good[1]])
    assert isinstance(error, ReplayError) and isinstance(first, Built) and isinstance(second, Built)
    for library in (first, second):
        assert measure(Check(problem, "transform", library)).seconds is not None
    (alone,) = evaluator.build(problem, HOST, [wrong])
    assert isinstance(alone, ReplayError)


def test_a_long_turn_makes_several_libraries(evaluator: Evaluator) -> None:
    problem = parse_signature(SIGNATURE.format("XIO", "f32"))
    (candidate,) = [each for each in candidates_of(problem, "strict") if each.algorithm == "plain"]
    built = evaluator.build(problem, HOST, [candidate] * (TOGETHER + 1))
    paths = [each.path for each in built if isinstance(each, Built)]
    assert len(paths) == TOGETHER + 1 and len({*paths[:-1]}) == 1 and paths[-1] != paths[0]
    assert len({each.ending for each in built if isinstance(each, Built)}) == TOGETHER + 1


@needs_emulator
def test_candidates_for_another_instruction_set(evaluator: Evaluator) -> None:
    """As a fleet's boards get them; here they run under QEMU."""
    problem, target = parse_signature(SIGNATURE.format("OIX", "f32")), Target.parse(N1)
    direct = [
        each for space in spaces_of(problem, target, "strict") for each in space.defaults if each.algorithm == "direct"
    ]
    arrays, expected = fills.exact_case(problem)
    emulator = emulator_of(N1)
    results = evaluator.build(problem, target, direct[:2])
    assert emulator is not None and len(results) == 2
    for built in results:
        assert isinstance(built, Built) and built.packed is not None
        packed, output = np.zeros(*built.packed), np.zeros(problem.output_shape, np.float32)
        data, filter_, bias = arrays.given().values()
        calls = [(built.pack, (filter_, packed)), (f"tvmconv_packed{built.ending}", (data, packed, bias, output))]
        emulator.run(Path(built.path), calls, 60.0)
        np.testing.assert_array_equal(output, expected)
