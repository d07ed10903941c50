"""Make the table of README.md: a line for each type of what `benchmarks.zoo` and `benchmarks.compare` measured.

Reads benchmarks/results/zoo and benchmarks/results/suites. ``--update FILE`` writes the table between the two markers of FILE in the
place of printing it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from .commands import print_errors
from .network_results import ratio_cells
from .report import cpu_of, markers, order, show, table, title
from .results import Result, read_result, summarize_rows
from .zoo_results import ZooResult
from .zoo_results import read_result as read_zoo

RESULTS = Path(__file__).parent / "results"
MARKERS = markers("benchmarks.front_page")
HEADER = ("what", "geometric mean", "worst", "below 1", "CPU, two threads", "date")


@print_errors
def main(argv: Sequence[str] | None = None) -> int:
    """Print or write the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.front_page", description=__doc__)
    parser.add_argument("--update", type=Path, metavar="FILE", help="write the table between the markers of this file")
    arguments = parser.parse_args(argv)
    text = committed()
    show(text, arguments.update, MARKERS)
    return 0


def committed() -> str:
    """Return the table of the results that the repository has."""
    zoo = [read_zoo(path) for path in sorted(RESULTS.glob("zoo/*/*.json"))]
    return front_page(zoo, [read_result(path) for path in sorted(RESULTS.glob("suites/*/*.json"))])


def front_page(zoo: Iterable[ZooResult], suites: Iterable[Result]) -> str:
    """Return the table: networks, then single convolutions; of CPUs on which the same was measured, that with the lowest mean."""
    least: dict[str, tuple[float, tuple[str, ...]]] = {}

    def keep(name: str, mean: float, line: tuple[str, ...]) -> None:
        if name not in least or mean < least[name][0]:
            least[name] = mean, line

    for networks in sorted(zoo, key=lambda result: result.dtype != "f32"):
        count, mean, worst, below = ratio_cells(networks.rows, 1)
        if mean:
            day, cpu = max(row.date for row in networks.rows)[:10], cpu_of(networks.machine)
            # Each CPU has its line, since their networks are not the same.
            line = (
                f"{count} networks, {networks.dtype}",
                mean,
                worst.partition(" ")[0],
                f"{below} of {count}",
                cpu,
                day,
            )
            keep(f"{line[0]} {cpu}", float(mean), line)
    for result in sorted(suites, key=order):
        summary, name = summarize_rows(result.rows), f"convolutions, {title(result)}"
        if summary is not None:
            numbers = (f"{summary.mean:.2f}", f"{summary.worst:.2f}", f"{summary.slower} of {summary.shapes}")
            keep(name, summary.mean, (name, *numbers, cpu_of(result.machine), result.date[:10]))
    return "\n".join(table(HEADER, [line for _, line in least.values()]))


if __name__ == "__main__":
    sys.exit(main())
