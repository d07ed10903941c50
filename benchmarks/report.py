"""Make the tables and pictures of what comparisons found.

Prints a table in Markdown: for each result a line for all its shapes, for each suite and, in f32, for the transposed
convolutions alone. ``--update FILE`` writes it between the two markers of FILE instead; ``--plots FOLDER`` draws the
ratio of every shape and a roofline for each result.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tvmconv.errors import SourceError, TvmconvError

from .results import Result, Row, Summary, read_result, summarize_rows

BEGIN = "<!-- Made by python -m benchmarks.report; do not edit. -->"
END = "<!-- End of what python -m benchmarks.report made. -->"
HEADER = "| type, layout | shapes of | number | geometric mean | worst | mean with plain filters |\n|---|---|---|---|---|---|"


def main(argv: Sequence[str] | None = None) -> int:
    """Report what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=__doc__)
    parser.add_argument("results", nargs="+", type=Path, metavar="RESULT", help="files that benchmarks.compare wrote")
    parser.add_argument("--update", type=Path, metavar="FILE", help="write the table between the markers of this file")
    parser.add_argument("--plots", type=Path, metavar="FOLDER", help="draw the pictures into this folder")
    arguments = parser.parse_args(argv)
    try:
        results = {path.stem: read_result(path) for path in arguments.results}
        text = report(results.values())
        if arguments.update:
            update(arguments.update, text)
        else:
            print(text)
    except TvmconvError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if arguments.plots:
        from .plots import plot_ratios, plot_roofline

        for name, result in results.items():
            plot_ratios(result, arguments.plots / f"{name}-ratios.png")
            plot_roofline(result, arguments.plots / f"{name}-roofline.png")
    return 0


def report(results: Iterable[Result]) -> str:
    """Return the table of `results` and where they were measured, in Markdown."""
    ordered = sorted(results, key=_order)
    if not ordered:
        return "No results are committed yet."
    lines = [HEADER]
    for result in ordered:
        lines += [_line(result, what, summary) for what, summary in summaries(result)]
    return "\n".join((*lines, "", *(f"- {_conditions(result)}" for result in ordered)))


def summaries(result: Result) -> list[tuple[str, Summary]]:
    """Return what each line of the table is about and its numbers."""
    groups: dict[str, list[Row]] = {"all suites": list(result.rows)}
    for row in result.rows:
        groups.setdefault(row.suite, []).append(row)
    transposed = [row for row in result.rows if row.problem.op == "convolution_backprop_data"]
    groups["ConvolutionBackpropData alone"] = transposed
    summarized = ((what, summarize_rows(rows)) for what, rows in groups.items())
    return [(what, summary) for what, summary in summarized if summary is not None]


def update(path: Path, text: str) -> None:
    """Write `text` between the markers of the file at `path`, whole or not at all.

    Raises
    ------
    SourceError
        If it has not one pair of markers.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_text(between(path.read_text(encoding="utf-8"), text, str(path)), encoding="utf-8")
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def between(document: str, text: str, name: str) -> str:
    """Return `document`, named `name` in messages, with `text` between its markers.

    Raises
    ------
    SourceError
        If it has not one pair of markers.
    """
    if document.count(BEGIN) != 1 or document.count(END) != 1 or document.index(BEGIN) > document.index(END):
        raise SourceError(f"{name} must have these two lines, once and in this order:\n{BEGIN}\n{END}")
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{after}"


def title(result: Result) -> str:
    """Return type, layouts and how the kernels were built, in a few words."""
    filters = {"nxc": "XIO", "ncx": "OIX"}[result.layout]
    words = [f"{result.dtype}, {result.layout.upper()}/{filters}"]
    words += [result.target] if result.target != "host" else []
    words += ["untuned"] if result.untuned else []
    words += [result.math] if result.math != "default" else []
    return ", ".join(words)


def _order(result: Result) -> tuple[Any, ...]:
    dtype, layout = ("f32", "bf16", "f16").index(result.dtype), ("nxc", "ncx").index(result.layout)
    return result.target != "host", dtype, layout, result.untuned, result.math


def _line(result: Result, what: str, summary: Summary) -> str:
    cells = (
        title(result),
        what,
        str(summary.shapes),
        f"{summary.mean:.2f}",
        f"{summary.worst:.2f}",
        f"{summary.plain_mean:.2f}",
    )
    return f"| {' | '.join(cells)} |"


def _conditions(result: Result) -> str:
    """Return where and with what it was measured."""
    peers = dict.fromkeys(name.partition("_")[0] for row in result.rows for name in row.peers)
    packages = {"pytorch": "torch"}
    versions = ", ".join(
        f"{peer} {result.versions[packages.get(peer, peer)]}"
        for peer in peers
        if packages.get(peer, peer) in result.versions
    )
    return (
        f"{title(result)}: {result.date[:10]}, {result.machine}, threads: {result.threads}, "
        f"tvmconv {result.versions['tvmconv']}, {versions}; load before: {result.load:.1f}."
        + "".join(f" {refusal}." for refusal in result.refusals)
    )


if __name__ == "__main__":
    sys.exit(main())
