"""Pictures of a comparison: the ratio of every shape, and how near each is to the machine's limits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from tvmconv.problem import Problem

from .report import title
from .results import Result, Row, summarize_rows

FASTER, SLOWER = "#2a7e43", "#c0392b"
# matplotlib's qualitative palettes have ten colours at most; more suites than that take other markers.
MARKERS = "osD^v"
# The rows of each suite that have a ratio, and it.
Suites = dict[str, list[tuple[Row, float]]]
matplotlib.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "0"})


def plot_ratios(result: Result, path: Path) -> None:
    """Draw the ratio of every shape as a bar, sorted within its suite, to `path` (PNG or SVG by its suffix)."""
    columns = two_columns(ratios(result))
    lines = max(sum(len(bars) + 2 for bars in column.values()) for column in columns)
    figure = Figure(figsize=(13, 1.2 + 0.17 * lines), layout="constrained")
    all_axes = figure.subplots(1, 2, sharex=True)
    for axes, column in zip(all_axes, columns, strict=True):
        _draw_bars(axes, column)
        axes.set_ylim(lines - 1, -1)
        axes.margins(x=0.12)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:.3g}")
        axes.axvline(1, color="black", linewidth=0.8)
        axes.grid(axis="x", alpha=0.3)
        axes.set_axisbelow(True)
        axes.set_xlabel("fastest peer's time / our time (right of 1: we are faster)")
    summary = summarize_rows(result.rows)
    assert summary is not None
    figure.suptitle(
        f"{title(result)}: {summary.shapes} shapes, geometric mean {summary.mean:.2f}, worst {summary.worst:.2f}"
    )
    save(figure, path)


def _draw_bars(axes: Any, suites: Suites) -> None:
    position, ticks = 0, []
    for suite, bars in suites.items():
        axes.annotate(
            suite, (0, position), (-4, 0), xycoords=axes.get_yaxis_transform(), textcoords="offset points",
            weight="bold", size=8, va="center", ha="right", annotation_clip=False,
        )  # fmt: skip
        for row, ratio in bars:
            position += 1
            axes.barh(position, ratio - 1, left=1, height=0.78, color=FASTER if ratio >= 1 else SLOWER)
            ticks.append((position, short_name(row.problem)))
            side = 1 if ratio >= 1 else -1
            axes.annotate(
                f"{ratio:.2f}", (ratio, position), (3 * side, 0), textcoords="offset points", va="center", size=6.5,
                ha="left" if side > 0 else "right",
            )  # fmt: skip
        position += 2
    positions, names = zip(*ticks, strict=True) if ticks else ((), ())
    axes.set_yticks(positions, names, size=6.5, family="monospace")
    axes.tick_params(axis="y", length=0)


def plot_roofline(result: Result, path: Path) -> None:
    """Draw what each shape reaches below the limits of arithmetic and bandwidth; needs the machine's measured peak."""
    figure = Figure(figsize=(9, 6), layout="constrained")
    axes = figure.subplots()
    points = list(roofline(result))
    suites = list(dict.fromkeys(row.suite for row, _, _ in points))
    low = min(intensity for _, intensity, _ in points) / 1.5
    high = max(intensity for _, intensity, _ in points) * 1.5
    flops = result.flops_limit
    if result.peak is not None and flops is not None:
        for name, bandwidth, style in (
            ("cache", result.peak.cache_bandwidth, "--"),
            ("memory", result.peak.bandwidth, ":"),
        ):
            corner = flops / bandwidth
            axes.plot(
                [low, corner, max(high, corner)], [low * bandwidth, flops, flops], "black", linestyle=style, linewidth=1
            )
            axes.annotate(
                f"{name} {bandwidth / 1e9:.0f} GB/s", (low, low * bandwidth), (12, 0), textcoords="offset points",
                size=8, va="top",
            )  # fmt: skip
        axes.annotate(
            f"{flops / 1e9:.0f} GFLOP/s", (high, flops), (0, 4), textcoords="offset points", ha="right", size=8
        )
    colours = [matplotlib.colormaps["tab10"](number) for number in range(10)]
    for number, suite in enumerate(suites):
        colour, marker = colours[number % len(colours)], MARKERS[number % len(MARKERS)]
        for row, intensity, rate in points:
            if row.suite != suite:
                continue
            if row.fastest is not None:
                peer = row.flops / row.peers[row.fastest].median
                axes.plot([intensity, intensity], [peer, rate], color=colour, linewidth=0.7, alpha=0.6)
            axes.plot(intensity, rate, marker, color=colour, markersize=5, markeredgecolor="white", markeredgewidth=0.4)
    handles = [
        Line2D([], [], color=colours[n % len(colours)], marker=MARKERS[n % len(MARKERS)], linestyle="", label=suite)
        for n, suite in enumerate(suites)
    ]
    handles.append(Line2D([], [], color="gray", linewidth=0.7, label="to the fastest peer"))
    axes.legend(handles=handles, loc="lower right", fontsize=8, frameon=False)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.grid(which="major", alpha=0.3)
    axes.set_xlabel("operations by the formula / bytes read and written at the least")
    axes.set_ylabel("operations by the formula per second")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value / 1e9:g} G")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_title(
        f"{title(result)}: what each shape reaches (Winograd takes fewer operations, so it may pass the peak)",
        loc="left",
        size=9,
    )
    save(figure, path)


def ratios(result: Result) -> Suites:
    """Return the rows that have a ratio, and it, by suite, the highest first."""
    suites: Suites = {}
    for row in result.rows:
        if row.ratio is not None:
            suites.setdefault(row.suite, []).append((row, row.ratio))
    return {suite: sorted(bars, key=lambda bar: -bar[1]) for suite, bars in suites.items()}


def two_columns(suites: Suites) -> tuple[Suites, Suites]:
    """Return the first suites, up to half of all bars or just beyond, and the others."""
    total = sum(len(bars) for bars in suites.values())
    first: Suites = {}
    for suite, bars in suites.items():
        if 2 * sum(map(len, first.values())) >= total:
            break
        first[suite] = bars
    return first, {suite: bars for suite, bars in suites.items() if suite not in first}


def roofline(result: Result) -> Iterator[tuple[Row, float, float]]:
    """Yield each row, its operations a byte, and the operations a second that we reach."""
    for row in result.rows:
        yield row, row.flops / row.nbytes, row.flops / row.ours


def short_name(problem: Problem) -> str:
    """Return a problem's label within its suite: channels, extents, taps, and unusual attributes."""
    p = problem
    words = [f"{p.in_channels}>{p.out_channels}", "x".join(map(str, p.in_spatial)), "k" + "x".join(map(str, p.kernel))]
    if max(p.strides) > 1:
        words.append(f"s{max(p.strides)}")
    if max(p.dilations) > 1:
        words.append(f"d{max(p.dilations)}")
    if p.groups > 1:
        words.append("depthwise" if p.groups == p.in_channels else f"g{p.groups}")
    if p.op == "convolution_backprop_data":
        words.append("T")
    return " ".join(words)


def save(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Without a date or a version in it, the same numbers give the same bytes.
    figure.savefig(path, dpi=130, metadata={"Software": None} if path.suffix == ".png" else {"Date": None})
