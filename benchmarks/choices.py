"""How good is the choice among algorithms, on CPUs that the cost model knows, and on ones that it has never seen?

Judges estimates by times that are kept: what every algorithm's default schedule took (`benchmarks/results/choices`), and the tuned
schedules of several algorithms (in `tuned` there, of records that ship or shipped). Each CPU is judged by its own row of coefficients, and by the nearest of the rows of
all other CPUs that were not fitted to its times.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import geometric_mean

from tvmconv.algorithms import table as algorithms
from tvmconv.cli.output import print_table
from tvmconv.signature import parse_signature
from tvmconv.targets.cost_rows import all_rows, nearest
from tvmconv.targets.costs import Costs
from tvmconv.targets.target import CpuTarget, Target

RESULTS = Path(__file__).parent / "results" / "choices"
# Rows that were fitted to times of another row's CPU, too.
SEEN = {"znver5": ("graniterapids",), "graniterapids": ("znver5",)}
# What no choice is to exceed.
MOST = 1.25
_JUDGED = ("mean", "worst", f"over {MOST}")
HEADER = ("times", "layers", "row", *_JUDGED, "row of another CPU", *_JUDGED)


@dataclass(frozen=True)
class Known:
    """Times of several algorithms of some problems.

    Attributes
    ----------
    name
        Where they are from.
    target
        What the kernels were built for.
    seconds
        By signature and algorithm.
    """

    name: str
    target: str
    seconds: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Seen(CpuTarget):
    """A CPU that is seen as one of another row of costs."""

    row: str = ""

    @property
    def costs(self) -> Costs:
        """The row's."""
        return all_rows()[self.row]


def main() -> int:
    """Print the table, or write it into a page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.choices", description=__doc__)
    parser.add_argument("--update", metavar="PAGE", help="write the table between the page's marks of it")
    arguments = parser.parse_args()
    rows = [_row(known) for known in every()]
    if arguments.update:
        page = Path(arguments.update)
        before, _, rest = page.read_text().partition("<!-- choices -->\n")
        after = rest.partition("<!-- /choices -->")[2]
        lines = ["| " + " | ".join(row) + " |" for row in (HEADER, ["---"] * len(HEADER), *rows)]
        page.write_text(f"{before}<!-- choices -->\n" + "\n".join(lines) + f"\n<!-- /choices -->{after}")
    else:
        print_table(HEADER, rows)
    return 0


def every() -> Iterator[Known]:
    """Yield all that is known."""
    for folder, name in ((RESULTS, "{}"), (RESULTS / "tuned", "tuned, {}")):
        for path in sorted(folder.glob("*.json")):
            kept = json.loads(path.read_text())
            yield Known(name.format(path.stem), kept["target"], kept["microseconds"])


def losses(known: Known, row: str) -> list[float]:
    """Return how many times as long as the fastest algorithm the one takes that a row of costs chooses, for each problem."""
    target = seen(known.target, row)
    found = []
    for signature, times in known.seconds.items():
        problem = parse_signature(signature)
        covering = [name for name in times if algorithms.get(name).covers(problem, target) is None]
        taken = min(covering, key=lambda name: algorithms.get(name).cycles(problem, target))
        found.append(times[taken] / min(times[name] for name in covering))
    return found


def seen(name: str, row: str) -> Seen:
    """Return a target that is seen as a CPU of another row."""
    target = Target.parse(name)
    assert isinstance(target, CpuTarget)
    return Seen(**{field.name: getattr(target, field.name) for field in fields(CpuTarget)}, row=row)


def _row(known: Known) -> list[str]:
    target = Target.parse(known.target)
    assert isinstance(target, CpuTarget)
    core = (target.vector_bits, target.vector_registers, target.multiply_adds)
    own = nearest(all_rows(), target.mcpu, core, target.l2, target.l3, target.features)
    rest = {name: row for name, row in all_rows().items() if name not in (own, *SEEN.get(own, ()))}
    other = nearest(rest, target.mcpu, core, target.l2, target.l3, target.features)
    cells = [known.name, str(len(known.seconds))]
    for name in (own, other):
        lost = losses(known, name)
        cells += [name, f"{geometric_mean(lost):.3f}", f"{max(lost):.2f}", str(sum(each > MOST for each in lost))]
    return cells


if __name__ == "__main__":
    sys.exit(main())
