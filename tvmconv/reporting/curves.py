"""Tuning curves: the fastest schedule so far against the candidates that were tried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import inf
from pathlib import Path

from ..runtime.bundle import Bundle
from ..tuning.trials import Trial, read_by_machine
from .svg import Scale, drawing, grid, mark

WIDTH, HEIGHT = 380, 220
LEFT, RIGHT, TOP, BOTTOM = 52, 368, 24, 178
# Ratio to the fastest time beyond which a trial is drawn at the upper edge.
SLOWEST = 4.0


@dataclass(frozen=True)
class Curve:
    """The trials of one problem on one target and machine, in order; at least one has a time."""

    signature: str
    target: str
    machine: str
    trials: tuple[Trial, ...]

    @property
    def best(self) -> Trial:
        """Fastest trial."""
        return min(self.trials, key=lambda trial: trial.cost)

    @property
    def failures(self) -> int:
        """Number of trials without a time."""
        return sum(trial.seconds is None for trial in self.trials)

    @property
    def steps(self) -> list[tuple[int, Trial]]:
        """Trials faster than all before, each with its number from 1."""
        found, best = [], inf
        for number, trial in enumerate(self.trials, 1):
            if trial.cost < best:
                best = trial.cost
                found.append((number, trial))
        return found


def read_curves(folder: Path, bundle: Bundle) -> list[Curve]:
    """Return the curves of a bundle's kernels that have trials in a folder of records."""
    return [
        Curve(entry.signature, entry.target, machine, tuple(trials))
        for entry in bundle.entries
        for machine, trials in read_by_machine(folder, entry.target, entry.signature).items()
        if any(trial.seconds is not None for trial in trials)
    ]


def draw_curves(curves: Sequence[Curve]) -> str:
    """Return a figure for each curve."""
    return '<div class="curves">' + "".join(map(_figure, curves)) + "</div>"


def _figure(curve: Curve) -> str:
    first, best = curve.steps[0][1], curve.best
    failed = f", {curve.failures} without a time" if curve.failures else ""
    return (
        f"<figure><figcaption><code>{escape(curve.signature)}</code><br>{escape(curve.target)}, {len(curve.trials)} candidates{failed};"
        f" {_us(first)} → {_us(best)} us ({escape(best.candidate.algorithm)}), {first.cost / best.cost:.2f} times as fast"
        f" as the first; {escape(curve.machine)}</figcaption>{_chart(curve)}</figure>"
    )


def _us(trial: Trial) -> str:
    return f"{trial.cost * 1e6:.1f}"


def _chart(curve: Curve) -> str:
    fastest = curve.best.cost * 1e6
    slowest = max(trial.seconds * 1e6 for trial in curve.trials if trial.seconds is not None)
    x = Scale(0, max(len(curve.trials), 2), LEFT, RIGHT, linear=True)
    y = Scale(fastest * 0.95, min(slowest, SLOWEST * fastest) * 1.05, BOTTOM, TOP, linear=True)
    times, failures = [], []
    for number, trial in enumerate(curve.trials, 1):
        if trial.seconds is None:
            failures.append(f"M{x(number):.1f},{BOTTOM}v-6")
        else:
            times.append(f"M{x(number):.1f},{_height(y, trial):.1f}h0")  # a line of no length with round ends is a dot
    (number, trial), *others = curve.steps
    line = [f"M{x(number):.1f},{_height(y, trial):.1f}"]
    line += [f"H{x(number):.1f}V{_height(y, trial):.1f}" for number, trial in others]
    content = [
        grid(x, y, "candidates", "us"),
        f'<path class="dots" d="{"".join(times)}"/>',
        f'<path class="failures" d="{"".join(failures)}"><title>no time</title></path>' if failures else "",
        f'<path class="best" d="{"".join(line)}H{RIGHT}"/>',
    ]
    for number, trial in curve.steps:
        hint = f"candidate {number}: {trial.candidate.algorithm}, {_us(trial)} us"
        content.append(mark(0, x(number), _height(y, trial), hint))
    return drawing(WIDTH, HEIGHT, f"Fastest of {len(curve.trials)} candidates so far", "".join(content))


def _height(y: Scale, trial: Trial) -> float:
    return y(min(trial.cost * 1e6, y.high))
