"""Which of several variants of a kernel this machine takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .bundle import ORIGINS, Bundle, BundleTarget, Entry
from .cpu import missing_features
from .errors import UnsupportedMachineError


def obstacle(target: BundleTarget) -> str | None:
    """Return why this machine cannot run code for `target`, or None if it can."""
    if target.kind != "cpu":
        return f"it is for {target.kind!r} devices, and this version runs kernels on CPUs only"
    missing = missing_features(target.features)
    return f"this machine's CPU lacks {', '.join(missing)}" if missing else None


def rank(bundle: Bundle, entry: Entry) -> tuple[Any, ...]:
    """Return what variants that run here are ordered by, the best first.

    More CPU features first: such code is wider, and made for machines like this one. Then tuned before
    untuned, then the shorter measured time.
    """
    seconds = entry.measured["seconds"] if entry.measured else float("inf")
    return (-len(bundle.targets[entry.target].features), ORIGINS.index(entry.origin), seconds)


def runnable(bundle: Bundle) -> list[Entry]:
    """Return the entries of `bundle` that this machine can run.

    Raises
    ------
    UnsupportedMachineError
        If the bundle has kernels, and this machine can run none of them.
    """
    obstacles = {name: obstacle(target) for name, target in bundle.targets.items()}
    entries = [entry for entry in bundle.entries if obstacles[entry.target] is None]
    if bundle.entries and not entries:
        used = sorted({entry.target for entry in bundle.entries})
        reasons = "; ".join(f"for {name}, {obstacles[name]}" for name in used)
        raise UnsupportedMachineError(
            f"{bundle.path} has no kernel that this machine can run: {reasons}; build it with --target host on this machine"
        )
    return entries


def take_best(bundles: Sequence[Bundle]) -> dict[str, tuple[Bundle, Entry]]:
    """Return, for each signature that this machine can run, the best variant; of equals the earlier bundle's.

    Raises
    ------
    UnsupportedMachineError
        If a bundle has kernels, and this machine can run none of them.
    """
    taken: dict[str, tuple[Bundle, Entry]] = {}
    for bundle in bundles:
        for entry in runnable(bundle):
            other = taken.get(entry.signature)
            if other is None or rank(bundle, entry) < rank(*other):
                taken[entry.signature] = (bundle, entry)
    return taken
