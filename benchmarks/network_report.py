"""Make the tables and the picture of what comparisons of whole networks found.

Prints a summary, a table for each result, what did not take part, and where it was measured, in Markdown. ``--update FILE``
writes it between the two markers of FILE instead; ``--plot FILE`` draws every network's ratios.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from .commands import print_errors
from .network_results import PEERS, NetworkResult, NetworkRow, RatedRow, mean_ratio, read_result
from .report import cpu_of, markers, show, table

MARKERS = markers("benchmarks.network_report")
SUMMARY = ("type, batch, CPU", "networks", "geometric mean", "worst", "below 1", "worst by parts")
CONDITIONS = (
    "type, batch, CPU",
    "measured on",
    "threads",
    "clock",
    "rounds, seconds",
    "from",
    "to",
    "load at most",
    "versions",
)


@print_errors
def main(argv: Sequence[str] | None = None) -> int:
    """Report what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.network_report", description=__doc__)
    parser.add_argument("results", nargs="+", type=Path, metavar="RESULT", help="files that benchmarks.networks wrote")
    parser.add_argument("--update", type=Path, metavar="FILE", help="write the tables between the markers of this file")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the picture (PNG or SVG by its suffix)")
    arguments = parser.parse_args(argv)
    results = [read_result(path) for path in arguments.results]
    text = report(results)
    show(text, arguments.update, MARKERS)
    if arguments.plot:
        from .network_plot import plot_networks

        plot_networks(ordered(results), arguments.plot)
    return 0


def ordered(results: Iterable[NetworkResult]) -> list[NetworkResult]:
    """Return results in the order in which they are shown."""
    return sorted(results, key=lambda result: (result.dtype != "f32", result.batch, result.threads, result.machine))


def title(result: NetworkResult) -> str:
    """Return type, batch and CPU in a few words."""
    return f"{result.dtype}, batch {result.batch}, {cpu_of(result.machine)}"


def report(results: Iterable[NetworkResult]) -> str:
    """Return the tables of results, and how they were measured, in Markdown."""
    shown = ordered(results)
    if not shown:
        return "No results are committed yet."
    lines = table(SUMMARY, map(_summary, shown))
    for result in shown:
        lines += ["", f"### {title(result)}", "", *_networks(result)]
        missing = [*_refusals(result), *(f"{row.network}, {layer}" for row in result.rows for layer in row.by_torch)]
        lines += ["", "Not computed:", "", *(f"- {each}" for each in missing)] if missing else []
    return "\n".join((*lines, "", "### Conditions", "", *table(CONDITIONS, map(_conditions, shown))))


def _summary(result: NetworkResult) -> tuple[str, ...]:
    """Return the cells of SUMMARY."""
    parts, network = max((row.by_parts, row.network) for row in result.rows)
    return title(result), *ratio_cells(result.rows, 1), f"{parts:.2f} ({network})"


def ratio_cells(rows: Sequence[RatedRow], *bounds: float) -> tuple[str, ...]:
    """Return how many rows have a ratio, their geometric mean, the worst, and how many are below each of some bounds."""
    ratios, mean = {row.network: row.ratio for row in rows if row.ratio is not None}, mean_ratio(rows)
    if mean is None:
        return "0", *("",) * (2 + len(bounds))
    worst = min(ratios, key=ratios.__getitem__)
    below = (str(sum(ratio < bound for ratio in ratios.values())) for bound in bounds)
    return str(len(ratios)), f"{mean:.2f}", f"{ratios[worst]:.2f} ({worst})", *below


def _networks(result: NetworkResult) -> list[str]:
    """Return a table with a line for each network."""
    peers = [peer for peer in PEERS if any(peer in row.peers for row in result.rows)]
    header = (
        "network",
        "tvmconv",
        *peers,
        "ratio",
        "of least",
        "our kernels",
        "others",
        "by parts",
        "ratio of kernels",
    )
    return table(header, (_cells(row, peers) for row in result.rows))


def _cells(row: NetworkRow, peers: Sequence[str]) -> tuple[str, ...]:
    times = [f"{1e3 * row.peers[peer].median:.1f}" if peer in row.peers else "" for peer in peers]
    return (
        row.network,
        f"{1e3 * row.ours.median:.1f}",
        *(f"**{time}**" if peer == row.fastest else time for peer, time in zip(peers, times, strict=True)),
        _ratio(row.ratio),
        _ratio(row.least_ratio),
        f"{1e3 * row.kernels.median:.1f}",
        f"{1e3 * row.others.median:.1f}",
        _ratio(row.by_parts),
        _ratio(row.kernels_ratio),
    )


def _ratio(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


def _refusals(result: NetworkResult) -> list[str]:
    """Return which peers did not compute which networks, and why."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for row in result.rows:
        for peer, reason in row.unsupported.items():
            reasons.setdefault((peer, reason), []).append(row.network)
    return [
        f"{peer}, {'all' if len(networks) == len(result.rows) else ', '.join(networks)}: {reason}"
        for (peer, reason), networks in reasons.items()
    ]


def _conditions(result: NetworkResult) -> tuple[str, ...]:
    """Return the cells of CONDITIONS."""
    packages = ("tvmconv", "torch", "openvino", "onnxruntime")
    return (
        title(result),
        result.machine,
        str(result.threads),
        result.clock,
        f"{result.rounds}, {result.seconds:g}",
        *span_cells(result.rows),
        ", ".join(f"{package} {result.versions[package]}" for package in packages if package in result.versions),
    )


def span_cells(rows: Sequence[RatedRow]) -> tuple[str, str, str]:
    """Return when the first and the last row were measured, and the greatest load."""
    dates = [row.date[:16].replace("T", " ") for row in rows]
    return min(dates, default=""), max(dates, default=""), f"{max((row.load for row in rows), default=0.0):.1f}"


if __name__ == "__main__":
    sys.exit(main())
