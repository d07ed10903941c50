"""Candidates of a made-up search space, written in C: right ones of known speed, and every kind of bad one.

The problem multiplies 64 numbers by one. A candidate's first decision is what it does, its second how many
steps of 200 microseconds a call takes. A fickle one takes one step where the trials
place the arrays, and two more elsewhere.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tvm_ffi.libinfo import find_dlpack_include_path, find_include_path

from tvmconv.errors import ReplayError
from tvmconv.isa.x86 import ISA as X86
from tvmconv.measuring import measure as measuring
from tvmconv.measuring import race
from tvmconv.measuring.measure import Check, Measured
from tvmconv.measuring.placements import PLACEMENTS
from tvmconv.measuring.race import Built, Race, Times
from tvmconv.signature import format_signature, parse_signature
from tvmconv.targets.target import CpuTarget
from tvmconv.tuning.evaluate import Evaluator
from tvmconv.tuning.problem_tuner import Session, TuneResult
from tvmconv.tuning.records import Records
from tvmconv.tuning.search import Candidate, Sketch, Space
from tvmconv.tuning.tasks import Compile, Describe
from tvmconv.tuning.tuner import tune_all

PROBLEM = parse_signature("conv1d-n1-i1x64-o1x64-k1-s1-d1-p0_0-g1-NXC-XIO-f32")
TARGET = CpuTarget("fake", (), "x86-64", isa=X86)
MACHINE = "fake machine"
RIGHT, WRONG, CRASHES, HANGS, FAILS, INCOMPLETE, FICKLE, BREAKS = range(8)
STEP_SECONDS = 2e-4
SOURCE = r"""
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <tvm/ffi/c_api.h>
static DLTensor* tensor(TVMFFIAny value) { return (DLTensor*)((char*)value.v_obj + sizeof(TVMFFIObject)); }
static long long now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}
int __tvm_ffi_tvmconv_kernel(void* self, const TVMFFIAny* args, int32_t count, TVMFFIAny* result) {
  float *data = tensor(args[0])->data, factor = *(float*)tensor(args[1])->data, *output = tensor(args[2])->data;
  int lucky = KIND == 6 && (uintptr_t)data % 4096 == TRIAL_OFFSET;
  long long end = now() + (lucky ? 1 : KIND == 6 ? STEPS + 2 : STEPS) * 200000LL;
  if (KIND == 2) abort();
  while (KIND == 3) pause();
  for (int i = 0; i < (KIND == 5 ? 63 : 64); i++) output[i] = data[i] * factor + (KIND == 1);
  while (now() < end) {}
  return 0;
}
"""


def sketch(*kinds: int, steps: int = 8) -> Sketch:
    """Return a sketch whose default does the first of `kinds` in half of the most steps."""
    return Sketch((kinds, tuple(range(1, steps + 1))), (kinds[0], (steps + 1) // 2))


# The same numbers by another signature.
OTHER = parse_signature("conv1d-n64-i1x1-o1x1-k1-s1-d1-p0_0-g1-NXC-XIO-f32")
SPACES = {
    "good": [Space("direct", 1, "exact", (sketch(RIGHT),)), Space("grouped", 1, "exact", (sketch(RIGHT, steps=12),))],
    "bad": [Space("direct", 1, "exact", (sketch(RIGHT, WRONG, CRASHES, HANGS, FAILS, INCOMPLETE, BREAKS, steps=1),))],
    "hopeless": [Space("direct", 1, "exact", (sketch(WRONG, CRASHES, steps=2),))],
    "fickle": [Space("direct", 1, "exact", (Sketch(((RIGHT, FICKLE), (3, 4)), (RIGHT, 4)),))],
    "steady": [Space("direct", 1, "exact", (Sketch(((RIGHT,), (1,), tuple(range(24))), (RIGHT, 1, 0)),))],
    "slow": [Space("direct", 1, "exact", (Sketch(((RIGHT,), (8,), tuple(range(6))), (RIGHT, 8, 0)),))],
    "quick": [Space("direct", 1, "exact", (Sketch(((RIGHT,), (1,), tuple(range(6))), (RIGHT, 1, 0)),))],
    "large": [Space("direct", 1, "exact", (Sketch(((RIGHT,), (1, 2, 3, 4), tuple(range(100))), (RIGHT, 4, 0)),))],
}


def work(spaces: list[Space], task: Describe | Compile) -> Any:
    """Stand in for `tvmconv.tuning.trial_library.work`."""
    if isinstance(task, Describe):
        return spaces
    return _compile(task.candidate, task.library)


def _compile(candidate: Candidate, path: str) -> Built | ReplayError:
    kind, steps, *_ = candidate.decisions
    if kind == FAILS:
        return ReplayError("this one does not compile")
    if kind == BREAKS:
        os.abort()
    includes = [f"-I{find_include_path()}", f"-I{find_dlpack_include_path()}"]
    source = Path(path).with_suffix(".c")
    source.write_text(SOURCE)
    defines = [f"-DKIND={kind}", f"-DSTEPS={steps}", f"-DTRIAL_OFFSET={PLACEMENTS[0].offsets[0]}"]
    subprocess.run(["cc", "-shared", "-fPIC", *defines, *includes, source, "-o", path], check=True)
    return Built(path)


def good(task: Describe | Compile) -> Any:
    """Work on the spaces without a bad candidate."""
    return work(SPACES["good"], task)


def bad(task: Describe | Compile) -> Any:
    """Work on the space with every kind of bad candidate."""
    return work(SPACES["bad"], task)


def hopeless(task: Describe | Compile) -> Any:
    """Work on the space without a good candidate."""
    return work(SPACES["hopeless"], task)


def fickle(task: Describe | Compile) -> Any:
    """Work on the space of which half is fast only where the trials place the arrays."""
    return work(SPACES["fickle"], task)


def steady(task: Describe | Compile) -> Any:
    """Work on the space whose candidates are all as fast."""
    return work(SPACES["steady"], task)


def two(task: Describe | Compile) -> Any:
    """Work on a space that takes eight times as long for `OTHER` as for `PROBLEM`."""
    return work(SPACES["slow" if task.problem == OTHER else "quick"], task)


def large(task: Describe | Compile) -> Any:
    """Work on a space of which nobody measures the 400 candidates."""
    return work(SPACES["large"], task)


def hasty_measure(task: Check | Race) -> Measured | Times:
    """Measure without waiting for a quiet moment: the least of some calls is what they take, also on a busy machine."""
    measuring.TRIAL_SECONDS, measuring.TRIAL_PATIENCE = 0.005, 0.02
    race.TURNS, race.TURN_SECONDS, race.TURN_PATIENCE, race.PLACEMENT_SECONDS = 1, 0.002, 0.02, 0.0
    return measuring.measure(task)


def tune(folder: Path, space: Any, trials: int | None, seconds: float | None = None, **others: Any) -> TuneResult:
    """Tune `PROBLEM` over one of the spaces above; `others`: `progress`, `seed`, `problems`, `scheduler`, `cold`."""
    progress, seed = others.pop("progress", None), others.pop("seed", 0)
    problems, cold = others.pop("problems", [PROBLEM]), others.pop("cold", False)
    with Evaluator(jobs=2, threads=1, work=space, measure=hasty_measure, cold_bytes=2**16 * cold) as evaluator:
        session = Session(evaluator, TARGET, Records(folder), MACHINE, seed, cold=cold)
        return tune_all(session, problems, trials, seconds, progress, **others)[0]


def trial_lines(folder: Path) -> list[dict[str, Any]]:
    """Return the trials that tuning kept in a folder of records."""
    path = folder / "fake" / "trials" / f"{format_signature(PROBLEM)}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def tune_until_interrupted(folder: Path) -> None:
    """Tune until all are measured, printing the number of trials."""
    tune(folder, large, trials=400, progress=lambda state: print(state.trials, flush=True))


@contextmanager
def quiet_placements(count: int) -> Iterator[None]:
    """Let races be disturbed in all but so many placements, whatever else this machine does."""
    race = Evaluator.race

    def race_of(*arguments: Any) -> Times:
        times = race(*arguments)
        return replace(times, quiet=tuple(number < count for number in range(len(times.quiet))))

    Evaluator.race = race_of  # type: ignore[method-assign]
    try:
        yield
    finally:
        Evaluator.race = race  # type: ignore[method-assign]
