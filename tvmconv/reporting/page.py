"""The page: everything in one file that needs nothing else, no network, no script or font from elsewhere."""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from importlib.metadata import version
from importlib.resources import files
from statistics import geometric_mean

from ..building.bench import BenchRow
from ..isa.machine import model_name
from ..measuring.peak import Peak
from ..runtime.bundle import EMULATED, Bundle
from ..runtime.selection import BACKENDS
from ..version import __version__
from .comparison import Comparison
from .comparison_table import draw_comparison
from .curves import Curve, draw_curves
from .kernel_table import draw_kernels
from .kernels import Line, roof, seconds
from .roofline import draw_roofline

# The browser holds the page to what it promises.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
# One process that always computes.
BUSY = 1.0
Facts = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Page:
    """Content of a page.

    Attributes
    ----------
    bundle, lines
        The bundle, and a line for each of its kernels.
    limits
        What the machine can do at most; None if unknown.
    threads, date, load
        With how many threads and when it was measured; processes that wanted a processor in the minute before.
    comparison
        With what `--against` named; None without it, or if no kernel that both have computes anything.
    curves
        Of those kernels that have trials.
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
    name = report.bundle.path.resolve().name
    sections = _sections(report)
    links = "".join(f'<a href="#{anchor}">{title}</a>' for anchor, title, _ in sections)
    body = "".join(f'<section id="{anchor}"><h2>{title}</h2>{text}</section>\n' for anchor, title, text in sections)
    when = report.date.strftime("%Y-%m-%d %H:%M UTC")
    return f"""\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<link rel="icon" href="data:,">
<title>{escape(name)}: tvmconv report</title>
<style>
{_file("page.css")}</style>
</head>
<body>
<header>
<h1>{escape(name)}</h1>
<p class="muted">tvmconv report of {when}, {escape(model_name())}, threads: {report.threads}</p>
<p>{escape(_summary(report))}</p>
{_busy(report.load)}<nav>{links}</nav>
</header>
<div class="facts">
{_facts("Machine", _machine(report))}
{_facts("Bundle", _bundle(report))}
{_facts("Timed by", _versions())}
</div>
{body}<script>
{_file("page.js")}</script>
</body>
</html>
"""


def _sections(report: Page) -> list[tuple[str, str, str]]:
    """Return an anchor, a title and HTML for each part that there is something to say in."""
    anchors = {(line.entry.signature, line.entry.target): f"k{index}" for index, line in enumerate(report.lines)}
    # Kernels without operations depend on the bias alone, and have no row.
    rows = [line.row for line in report.lines if line.row is not None and line.row.flops]
    sections = []
    if rows:
        limits = report.limits if any(BACKENDS[row.kind].has_peak for row in rows) else None
        sections.append(("roofline", "Roofline", draw_roofline(rows, limits, anchors) + _roofline_note(rows, limits)))
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


def _roofline_note(rows: Sequence[BenchRow], limits: Peak | None) -> str:
    unmeasured = {BACKENDS[row.kind].plural for row in rows if not BACKENDS[row.kind].has_peak}
    if limits is None and all(BACKENDS[row.kind].plural in unmeasured for row in rows):
        return f"<p class='muted'>What {' and '.join(sorted(unmeasured))} can do at most is not measured here.</p>"
    if limits is None:
        return "<p class='muted'>The machine's limits are unknown: no C compiler with OpenMP to measure them with.</p>"
    return (
        "<p class='muted'>The lines are what this machine was measured to do with these threads. Arrays that are used again"
        " and again come from the cache as long as it holds them, so the share of the roof takes its bandwidth (dashed). Operations are"
        " those of the formula: a transform (Winograd) takes fewer, and may pass the peak. A point leads to its line in the table.</p>"
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


def _busy(load: float) -> str:
    if load < BUSY:
        return ""
    return (
        f'<p class="warning">In the minute before, {load:.1f} processes wanted a processor. If they still did while kernels'
        " were timed, times are longer and peaks lower than on a quiet machine: report again there.</p>\n"
    )


def _count(counts: Counter[str], head: str) -> str:
    tail = ", ".join(f"{count} {what}" for what, count in counts.most_common())
    return ": ".join(part for part in (head, tail) if part)


def _machine(report: Page) -> Facts:
    facts = [
        ("CPU", model_name()),
        ("system", f"{platform.system()} {platform.machine()}"),
        ("processors", f"{len(os.sched_getaffinity(0))} usable of {os.cpu_count()}"),
        ("threads", str(report.threads)),
        ("load before", f"{report.load:.1f} in the last minute"),
    ]
    for kind in sorted({line.row.kind for line in report.lines if line.row is not None}):
        if None not in (devices := BACKENDS[kind].devices()):  # of the CPU, there is a line already
            facts.append((BACKENDS[kind].plural, ", ".join(map(str, devices))))
    limits = report.limits
    if limits is None:
        return [*facts, ("peak", "unknown")]
    facts.append(("peak, f32", f"{limits.flops / 1e9:.1f} GFLOP/s"))
    if limits.bf16_flops:
        facts.append(("peak, bf16", f"{limits.bf16_flops / 1e9:.1f} GFLOP/s"))
    facts.append(("memory", f"{limits.bandwidth / 1e9:.1f} GB/s read"))
    facts.append(("cache", f"{limits.cache_bandwidth / 1e9:.1f} GB/s read"))
    return facts


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


def _versions() -> Facts:
    return [
        ("tvmconv", __version__),
        ("tvm-ffi", version("apache-tvm-ffi")),
        ("NumPy", version("numpy")),
        ("Python", platform.python_version()),
    ]


def _facts(title: str, facts: Facts) -> str:
    lines = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts)
    return f"<div><h3>{title}</h3><dl>{lines}</dl></div>"


def _file(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
