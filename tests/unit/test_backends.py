"""A kind of devices that a newcomer adds: a backend in the table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from toys import entry, small_problem, write_bundle

from tvmconv.errors import UnsupportedMachineError
from tvmconv.runtime import selection
from tvmconv.runtime.backend import Backend
from tvmconv.runtime.bundle import BundleTarget
from tvmconv.runtime.registry import Registry
from tvmconv.signature import format_signature

PROBLEM = small_problem()


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
    packs=False,
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
