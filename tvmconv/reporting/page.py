"""The page of a bundle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from statistics import geometric_mean

from ..building.bench import BenchRow
from ..measuring.peak import Peak
from ..runtime.bundle import EMULATED, Bundle
from ..runtime.selection import BACKENDS
from .comparison import Comparison
from .comparison_table import draw_comparison
from .curves import Curve, draw_curves
from .document import Facts, Section, document, machine_facts
from .kernel_table import draw_kernels
from .kernels import Line, roof, seconds
from .roofline import draw_roofline


@dataclass(frozen=True)
class Page:
    """Content of a page.

    Attributes
    ----------
    bundle, lines
        The bundle, and a line for each of its kernels.
    limits
        The machine's limits; None if unknown.
    threads, date, load
        Number of threads and date of the measurement; load average of the minute before.
    comparison
        With the bundle of `--against`; None without it, or if all common kernels have empty outputs.
    curves
        Tuning curves of the kernels that have trials.
    """

    bundle: Bundle
    lines: Sequence[Line]
    limits: Peak | None
    threads: int
    date: datetime
    load: float
    comparison: Comparison | None
    curves: Sequence[Curve]


def render(report: Page) -> str:
    """Return the page."""
    devices = []
    for kind in sorted({line.row.kind for line in report.lines if line.row is not None}):
        if None not in (found := BACKENDS[kind].devices()):  # the CPU has a line already
            devices.append((BACKENDS[kind].plural, ", ".join(map(str, found))))
    facts = [
        ("Machine", machine_facts(report.limits, report.threads, report.load, devices)),
        ("Bundle", _bundle(report)),
    ]
    name = report.bundle.path.resolve().name
    sections, summary = _sections(report), _summary(report)
    return document(name, summary, sections, facts, report.date, report.threads, report.load)


def _sections(report: Page) -> list[Section]:
    """Return an anchor, a title and HTML for each part that has content."""
    anchors = {(line.entry.signature, line.entry.target): f"k{index}" for index, line in enumerate(report.lines)}
    # Kernels without operations, whose outputs are the bias, are not drawn.
    rows = [line.row for line in report.lines if line.row is not None and line.row.flops]
    sections = []
    if rows:
        limits = report.limits if any(BACKENDS[row.kind].has_peak for row in rows) else None
        sections.append(("roofline", "Roofline", draw_roofline(rows, limits, anchors) + roofline_note(rows, limits)))
    sections.append(("table", "Kernels", _KERNELS_NOTE + draw_kernels(report.lines, report.limits, anchors)))
    if report.comparison is not None:
        title = f"Against {escape(report.comparison.other)}"
        sections.append(("against", title, draw_comparison(report.comparison)))
    if report.curves:
        sections.append(("tuning", "Tuning", _CURVES_NOTE + draw_curves(report.curves)))
    return sections


_KERNELS_NOTE = (
    "<p class='muted'>A click on a header sorts. Times are medians of calls on the same arrays again and again.</p>"
)
_CURVES_NOTE = (
    "<p class='muted'>The fastest schedule so far against the candidates tried, in their order. Dots are candidates;"
    " those more than four times as slow as the fastest are at the upper edge, and those without a time (they did not compile, were wrong,"
    " crashed or took too long) are ticks on the axis. The pointer over a mark shows its algorithm and time.</p>"
)


def roofline_note(rows: Sequence[BenchRow], limits: Peak | None) -> str:
    """Return the note under a roofline."""
    unmeasured = {BACKENDS[row.kind].plural for row in rows if not BACKENDS[row.kind].has_peak}
    if limits is None and all(BACKENDS[row.kind].plural in unmeasured for row in rows):
        return f"<p class='muted'>What {' and '.join(sorted(unmeasured))} can do at most is not measured here.</p>"
    if limits is None:
        return "<p class='muted'>The machine's limits are unknown: no C compiler with OpenMP to measure them with, or kernels exceeded them, as happens while other programs compute.</p>"
    return (
        "<p class='muted'>The lines are what this machine was measured to do with these threads. Arrays that are used again"
        " and again come from the cache as long as it holds them, so the share of the roof takes its bandwidth (dashed). Operations are"
        " those of the formula: a transform (Winograd) takes fewer, and may exceed the peak. A point links to its row in the table.</p>"
    )


def _summary(report: Page) -> str:
    entries = [line.entry for line in report.lines]
    timed = [line.row for line in report.lines if line.row is not None]
    parts = [_count(Counter(entry.origin for entry in entries), f"{len(entries)} kernels")]
    verdicts = {True: "verified", EMULATED: "emulated", False: "wrong", None: "never verified"}
    parts.append(_count(Counter(verdicts[entry.verified] for entry in entries), ""))
    parts.append(f"{len(timed)} timed here")
    limits = [(row, roof(row, report.limits)) for row in timed]
    shares = [row.flops / seconds(row) / limit for row, limit in limits if limit]
    if shares:
        parts.append(f"{geometric_mean(shares):.0%} of the roof by the geometric mean")
    return "; ".join(part for part in parts if part) + "."


def _count(counts: Counter[str], head: str) -> str:
    tail = ", ".join(f"{count} {what}" for what, count in counts.most_common())
    return ": ".join(part for part in (head, tail) if part)


def _bundle(report: Page) -> Facts:
    bundle = report.bundle
    size = sum(line.library_bytes for line in report.lines)
    return [
        ("tvmconv", bundle.tvmconv),
        ("TVM", bundle.tvm),
        ("source", bundle.source_commit or "unknown commit"),
        *((f"target {name}", f"{target.kind}: {' '.join(target.features)}") for name, target in bundle.targets.items()),
        ("libraries", f"{size / 2**20:.2f} MiB"),
    ]
