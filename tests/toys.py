"""Small kernels and bundles for the tests of linking, loading and calling."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Container, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from warm_workers import unoptimized

from tvmconv import ops, parse_family
from tvmconv.problem import Problem
from tvmconv.runtime.bundle import Bundle, BundleTarget, Entry, read_bundle, write_manifest
from tvmconv.signature import format_signature

if TYPE_CHECKING:
    from tvmconv.lowering.compiler import Choice

FAKE_SHA256 = "0" * 64


def small_problem(dtype: str = "f32", bias: bool = False, **changes: object) -> Problem:
    """Return a convolution whose kernel is parallel, vectorized and has odd edges."""
    problem = ops.convolution(
        (2, 9, 7, 19), (3, 3, 19, 21), strides=(1, 1), dilations=(1, 1), auto_pad="same_upper",
        dtype=dtype, bias_shape=(21,) if bias else None,
    )  # fmt: skip
    return problem.with_(**changes) if changes else problem


def entry(signature: str, target: str = "any", sha256: str = FAKE_SHA256, **changes: object) -> Entry:
    """Return a bundle's entry with plain values where the caller gives none."""
    fields: dict[str, object] = {
        "signature": signature, "target": target, "algorithm": "direct", "definition_version": 1,
        "numerical_class": "exact", "origin": "default", "file": f"{target}/{signature}.so", "sha256": sha256,
        "symbol": "tvmconv_kernel", "packed_filter": None, "workspace_bytes": 0, "measured": None, "error": None, "verified": True,
    }  # fmt: skip
    return Entry(**{**fields, **changes})  # type: ignore[arg-type]


def write_bundle(path: Path, entries: Iterable[Entry], **targets: Iterable[str]) -> Bundle:
    """Write a bundle with these entries and targets (name: CPU features), without libraries."""
    path.mkdir(parents=True, exist_ok=True)
    kinds = {name: BundleTarget("cpu", tuple(features)) for name, features in (targets or {"any": ()}).items()}
    bundle = Bundle(path, "0.1.0", "0.27.0.post1", None, kinds, tuple(entries))
    write_manifest(bundle)
    return bundle


def compile_families(
    path: Path, families: Mapping[str, str], target: str = "host", problems: Iterable[Problem] = ()
) -> Path:
    """Compile a bundle of families, by their texts, each by an algorithm, in this process, unverified; and of `problems`.

    Without LLVM's optimizations, as `quick` of :func:`compile_bundle`.
    """
    from tvmconv.algorithms.table import get
    from tvmconv.building.decision.decide import Decision, Way
    from tvmconv.building.fallbacks import Attempt, Job, attempt
    from tvmconv.lowering.cpu.blocks import candidates, choose_blocks, reach_of, typical_outputs
    from tvmconv.targets.target import CpuTarget, Target

    compile_bundle(path, problems, target, quick=True)
    parsed, made = Target.parse(target), []
    assert isinstance(parsed, CpuTarget)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CpuTarget, "tvm", unoptimized(CpuTarget.tvm))
        for number, (text, algorithm) in enumerate(families.items()):
            family = parse_family(text)
            able = [each for name in algorithm.split("+") for each in candidates(family, parsed, get(name))]
            blocks = choose_blocks(able, typical_outputs(family), reach_of(family))
            way = Way(
                "default", algorithm.split("+")[0], blocks=tuple((each.algorithm, each.outputs) for each in blocks)
            )
            job = Job(Decision(family, parsed, "default", (way,)), str(path), check=False)
            built = attempt(Attempt(job, way, f"{parsed.name}/family{number}.so"))
            assert built is not None
            made.append(replace(built.entry, verified=True))
    write_manifest(replace(read_bundle(path), families=tuple(made)))
    return path


def compile_bundle(
    path: Path,
    problems: Iterable[Problem],
    target: str = "host",
    choice: Choice | None = None,
    strict: Container[Problem] = (),
    quick: bool = False,
    choices: Mapping[Problem, str] | None = None,
) -> Path:
    """Compile a bundle in this process, unverified; `strict` problems by exact algorithms, whatever the CPU likes best.

    `choices` are the algorithms of problems.

    `quick` leaves out LLVM's optimizations, which take most of the time, but not what this project does.
    """
    import tvm

    from tvmconv.lowering.compiler import Choice, compile_problem, default_choice
    from tvmconv.targets.target import CpuTarget, Target

    optimized = CpuTarget.tvm

    def unoptimized(target: CpuTarget, keep_zeros: bool = False) -> tvm.target.Target:
        return tvm.target.Target({**optimized(target, keep_zeros).export(), "opt-level": 0})

    parsed = Target.parse(target)
    (path / parsed.name).mkdir(parents=True)
    entries = []
    for problem in problems:
        made = entry(format_signature(problem), parsed.name)
        chosen = default_choice(problem, parsed, "strict") if problem in strict else choice
        chosen = Choice(choices[problem]) if choices else chosen
        with pytest.MonkeyPatch.context() as patch:
            if quick:
                patch.setattr(CpuTarget, "tvm", unoptimized)
            kernel = compile_problem(problem, parsed, path / made.file, choice=chosen)
        digest = hashlib.sha256((path / made.file).read_bytes()).hexdigest()
        what = {
            "algorithm": kernel.algorithm,
            "numerical_class": kernel.numerical_class,
            "packed_filter": kernel.packed_filter,
        }
        entries.append(entry(made.signature, made.target, digest, **what))
    write_bundle(path, entries, **{parsed.name: parsed.features})
    return path


def run_python(script: str, *arguments: object, python: str = sys.executable, **environment: str) -> str:
    """Run a script in a fresh process that has no torch and return what it prints; fail with its errors, or after ten minutes."""
    prologue = "import sys; sys.modules['torch'] = None\n"  # torch brings an OpenMP library of its own
    command = [python, "-c", prologue + script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env={**os.environ, **environment})
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout.strip()
