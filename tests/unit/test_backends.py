"""A kind of devices that a newcomer adds: a backend in the table, and a folder that generates code."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from toys import entry, small_problem, write_bundle

from tvmconv.errors import TvmconvError, UnsupportedMachineError
from tvmconv.lowering.code_generator import CodeGenerator
from tvmconv.lowering.stages import check_stage, show
from tvmconv.runtime import selection
from tvmconv.runtime.backend import Backend
from tvmconv.runtime.bundle import BundleTarget
from tvmconv.runtime.registry import Registry
from tvmconv.signature import format_signature
from tvmconv.targets.target import Target

PROBLEM = small_problem()
ROOT = Path(__file__).parents[2] / "tvmconv"
# What asks which kind a target is of. Networks are for CPUs alone, and say so; `calibrate` and a fleet's servers are about this
# machine's CPU, which is told by its facts.
ASKS = r"""kind [!=]= "(cpu|cuda)"|isinstance\(.*(Cpu|Cuda)Target\)|startswith\("cuda"""
ALLOWED = {
    "building/decision/decide.py",  # families are for CPUs
    "building/fallbacks.py",
    "cli/calibrate.py",
    "cli/explain.py",
    "fleet/protocol.py",
    "fleet/session.py",
    "network/options.py",
}


@dataclass(frozen=True)
class Toy:
    """A device."""

    kind: str = "toy"


BACKEND = Backend(
    kind="toy",
    plural="toys",
    devices=lambda: (Toy(),),  # type: ignore[arg-type, return-value]
    obstacle=lambda target: "it is broken" if "broken" in target.features else None,
    obstacle_on=lambda target, device: "it is broken" if "broken" in target.features else None,
    rank=lambda target, device: -len(target.features),
    fitness=lambda target, device: "it is a toy",
    kernel=lambda bundle, entry, threads, before: f"the kernel for {entry.target}",  # type: ignore[arg-type, return-value]
)


@pytest.fixture
def registry_of(tmp_path: Path) -> Any:
    """Return a registry of kernels for toys, whose targets have these features."""
    signature = format_signature(PROBLEM)

    def made(**targets: tuple[str, ...]) -> Registry:
        bundle = write_bundle(tmp_path, [entry(signature, target=name) for name in targets], **targets)
        kinds = {name: BundleTarget("toy", features) for name, features in targets.items()}
        return Registry([replace(bundle, targets=kinds)])

    return made


def test_a_backend_finds_orders_and_makes_kernels(registry_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(selection.BACKENDS, "toy", BACKEND)
    registry = registry_of(plain=("a",), better=("a", "b"), best=("a", "b", "broken"))
    assert registry.lookup(PROBLEM) == "the kernel for better"
    reasons = {each.target: each.reason for each in registry.explain(PROBLEM).variants}
    assert reasons["better"].startswith("it is a toy") and reasons["best"] == "it is broken"
    assert "better in" in reasons["plain"]


def test_a_kind_that_nobody_knows_is_not_run(registry_of: Any) -> None:
    with pytest.raises(UnsupportedMachineError, match="'toy' devices, which this version of tvmconv does not know"):
        registry_of(plain=("a",))


class ToyTarget(Target):
    kind = "toy"


class ToyGenerator:
    stages: tuple[str, ...] = ("bricks",)
    passes: tuple[str, ...] = ()
    in_parts = False

    def check_tools(self, target: Target) -> None:
        raise AssertionError("nothing is built here")

    def write(
        self, problem: Any, target: Target, choice: Any, entry_points: Any, path: Any, apart: bool, next_lines: int
    ) -> tuple[None, int]:
        Path(path).write_text(f"{choice.algorithm} for {target.name}")
        return None, 7

    def show(self, stage: str, problem: Any, target: Target, choice: Any) -> str:
        return f"{stage} of {choice.algorithm}"

    def module(self, scheduled: Any, definition: Any, target: Target) -> Any:
        raise AssertionError("nothing is called here")


def test_a_code_generator_is_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from tvmconv.algorithms import table
    from tvmconv.lowering.compiler import Choice, compile_problem, default_choice

    generator: CodeGenerator = ToyGenerator()
    monkeypatch.setitem(sys.modules, "tvmconv.lowering.toy", SimpleNamespace())  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "tvmconv.lowering.toy.generator", generator)  # type: ignore[arg-type]
    module = ModuleType("built")
    module.__dict__.update(covers=lambda *_: None, estimate=lambda *_: {"cycles": 3.0})
    monkeypatch.setitem(sys.modules, "tvmconv.algorithms.toy", SimpleNamespace())  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "tvmconv.algorithms.toy.built", module)
    built = table.Algorithm("built", 2, "exact", "built", kind="toy")
    monkeypatch.setattr(table, "ALGORITHMS", (*table.ALGORITHMS, built))
    target = ToyTarget("toy:1", ())
    assert default_choice(PROBLEM, target) == Choice("built") and built.cycles(PROBLEM, target) == 3.0
    kernel = compile_problem(PROBLEM, target, tmp_path / "kernel")
    assert (kernel.algorithm, kernel.version, kernel.workspace_bytes) == ("built", 2, 7)
    assert (tmp_path / "kernel").read_text() == "built for toy:1"
    assert show("bricks", PROBLEM, target, Choice("built")) == "bricks of built"
    with pytest.raises(TvmconvError, match="stage is 'asm', which toy:1 does not have; allowed: te, schedule, bricks"):
        check_stage("asm", target)


def test_nothing_else_asks_for_a_kind() -> None:
    asking = {
        path.relative_to(ROOT).as_posix()
        for path in ROOT.glob("*/**/*.py")
        if any(re.search(ASKS, line) for line in path.read_text().splitlines())
    }
    assert asking == ALLOWED
