"""Make the tables and pictures of what comparisons found.

Prints for each CPU, that measured last first, where its results were measured and three tables in Markdown: a line for
each result, the suites of all results side by side, and how each was measured. ``--update FILE`` writes them between the
two markers of FILE instead; ``--plots`` draws the ratio of every shape and a roofline beside each result.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tvmconv.cli.output import print_table
from tvmconv.errors import SourceError
from tvmconv.isa.machine import model_name
from tvmconv.support.files import write_whole

from .commands import print_errors
from .results import Result, Row, read_result, summarize_rows


def markers(module: str) -> tuple[str, str]:
    """Return the lines of a document between which stands what a module of this name makes."""
    return f"<!-- Made by python -m {module}; do not edit. -->", f"<!-- End of what python -m {module} made. -->"


def show_simulated(
    header: Sequence[str], rows: Sequence[Sequence[str]], file: Path | None, found: tuple[str, str]
) -> None:
    """Print a table of microseconds of tasks that were timed alone, or write it between two markers of a file."""
    if file is None:
        print_table(header, rows)
        return
    where = f"Microseconds, f32; tasks were timed on one core of {model_name()}:"
    show("\n".join([where, "", *table(header, rows)]), file, found)


BEGIN, END = MARKERS = markers("benchmarks.report")
CONDITIONS = ("type, layout", "measured on", "threads", "date", "load before", "versions", "shapes not computed")
HEADER = (
    *("type, layout", "shapes", "geometric mean", "worst", "below 1"),
    *("with plain filters", "plain beside plain", "transposed alone"),
)


@print_errors
def main(argv: Sequence[str] | None = None) -> int:
    """Run the report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=__doc__)
    parser.add_argument("results", nargs="+", type=Path, metavar="RESULT", help="files that benchmarks.compare wrote")
    parser.add_argument("--update", type=Path, metavar="FILE", help="write the table between the markers of this file")
    parser.add_argument("--plots", action="store_true", help="draw the pictures, beside the results")
    arguments = parser.parse_args(argv)
    results = {path: read_result(path) for path in arguments.results}
    text = report(results.values())
    show(text, arguments.update)
    if arguments.plots:
        from .plots import plot_ratios, plot_roofline

        for path, result in results.items():
            plot_ratios(result, path.with_name(f"{path.stem}-ratios.png"))
            plot_roofline(result, path.with_name(f"{path.stem}-roofline.png"))
    return 0


def report(results: Iterable[Result]) -> str:
    """Return the tables of `results` and how they were measured, in Markdown: of each CPU, that measured last first."""
    by_cpu: dict[str, list[Result]] = {}
    for result in sorted(results, key=lambda result: result.date, reverse=True):
        by_cpu.setdefault(cpu_of(result.machine), []).append(result)
    if not by_cpu:
        return "No results are committed yet."
    if len(by_cpu) == 1:
        return _tables(*by_cpu.values())
    return "\n\n".join(f"### {cpu}\n\n{_tables(of_cpu)}" for cpu, of_cpu in by_cpu.items())


def _tables(results: Sequence[Result]) -> str:
    ordered = sorted(results, key=order)
    suites = sorted({row.suite for result in ordered for row in result.rows})
    by_suite = [
        (suite, *(_short(row for row in result.rows if row.suite == suite) for result in ordered)) for suite in suites
    ]
    return "\n".join(
        (
            _places(ordered),
            "",
            *table(HEADER, map(_line, ordered)),
            "",
            *table(("suite", *map(title, ordered)), by_suite),
            "",
            *table(CONDITIONS, map(_conditions, ordered)),
        )
    )


def show(text: str, path: Path | None, lines: tuple[str, str] = MARKERS) -> None:
    """Write `text` between the markers of the file at `path`, whole or not at all; print it if there is none.

    Raises
    ------
    SourceError
        If it has not one pair of markers.
    """
    if path is None:
        print(text)
    else:
        write_whole(path, between(path.read_text(encoding="utf-8"), text, str(path), lines).encode())


def between(document: str, text: str, name: str, lines: tuple[str, str] = MARKERS) -> str:
    """Return `document`, named `name` in messages, with `text` between its markers.

    Raises
    ------
    SourceError
        If it has not one pair of markers.
    """
    begin, end = lines
    if document.count(begin) != 1 or document.count(end) != 1 or document.index(begin) > document.index(end):
        raise SourceError(f"{name} must have these two lines, once and in this order:\n{begin}\n{end}")
    before, _, rest = document.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n\n{text}\n\n{end}{after}"


def title(result: Result) -> str:
    """Return type, layouts and how the kernels were built, in a few words."""
    filters = {"nxc": "XIO", "ncx": "OIX"}[result.layout]
    words = [f"{result.dtype}, {result.layout.upper()}/{filters}"]
    words += [result.target] if result.target != "host" else []
    words += ["untuned"] if result.untuned else []
    words += [result.math] if result.math != "default" else []
    words += ["one thread"] if result.threads == 1 else []
    return ", ".join(words)


def order(result: Result) -> tuple[Any, ...]:
    """Return the key by which results are sorted: of this machine first, then by type and layout."""
    dtype, layout = ("f32", "bf16", "f16").index(result.dtype), ("nxc", "ncx").index(result.layout)
    return result.target != "host", dtype, layout, result.untuned, result.math, -result.threads


def table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> list[str]:
    """Return a table in Markdown."""
    return [f"| {' | '.join(cells)} |" for cells in (header, ("---",) * len(header), *lines)]


def _line(result: Result) -> tuple[str, ...]:
    """Return the cells of HEADER."""
    summary = summarize_rows(result.rows)
    if summary is None:
        return (title(result), "0", *("",) * (len(HEADER) - 2))
    return (
        title(result),
        str(summary.shapes),
        f"{summary.mean:.2f}",
        f"{summary.worst:.2f}",
        str(summary.slower),
        f"{summary.plain_mean:.2f} ({summary.plain_worst:.2f})",
        "" if summary.given_mean is None else f"{summary.given_mean:.2f} ({summary.given_worst:.2f})",
        _short(row for row in result.rows if row.problem.op == "convolution_backprop_data"),
    )


def _short(rows: Iterable[Row]) -> str:
    """Return geometric mean and worst of `rows` in one cell."""
    summary = summarize_rows(rows)
    return "" if summary is None else f"{summary.mean:.2f} ({summary.worst:.2f})"


def cpu_of(machine: str) -> str:
    """Return LLVM's name of the CPU that a machine's line has in brackets, or the line."""
    named = re.search(r"\(([a-z0-9_-]+)\)", machine)
    return named[1] if named else machine


def _places(results: Iterable[Result]) -> str:
    places = dict.fromkeys(
        f"{result.machine}, {result.threads} thread{'s' if result.threads > 1 else ''}" for result in results
    )
    return f"Measured on {'; '.join(places) or 'no machine yet'}."


def _conditions(result: Result) -> tuple[str, ...]:
    """Return the cells of CONDITIONS."""
    names = dict.fromkeys(name for row in result.rows for name in (*row.peers, *row.unsupported))
    libraries = dict.fromkeys(name.partition("_")[0] for name in names)
    packages = {"pytorch": "torch"}
    versions = (
        f"{library} {result.versions[packages.get(library, library)]}"
        for library in libraries
        if packages.get(library, library) in result.versions
    )
    lacks = {name: sum(name in row.unsupported for row in result.rows) for name in names}
    return (
        title(result),
        result.machine,
        str(result.threads),
        result.date[:10],
        f"{result.load:.1f}",
        ", ".join((f"tvmconv {result.versions['tvmconv']}", *versions)),
        ", ".join(f"{name} {count}" for name, count in lacks.items() if count) or "none",
    )


if __name__ == "__main__":
    sys.exit(main())
