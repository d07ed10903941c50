"""Times that kernels would take if sums were cut where they have fewer tasks than threads, which no kernel does: to judge whether to build it.

    python -m benchmarks.sums_in_parts BUNDLE --threads 16,64 --update benchmarks/results/many_cores.md

Tasks are timed alone, as by `benchmarks.simulated_cores`. In each kernel the loop that takes longest, where it has fewer tasks than threads,
has 2, 4 or 8 times as many, each of a part of the sums, if that is faster; another loop adds the parts. That is as fast as it could be: a
part takes its share of the time, what is stored more and read again comes at a core's rate, and all threads add. Beside it is the same
loop cut evenly, as by `benchmarks.step_orders`: in outputs, which takes no other loop, but needs enough of them.

In brackets: with what it takes to wake threads.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from statistics import geometric_mean

from tvmconv.signature import parse_signature

from .commands import print_errors
from .report import markers, show_simulated
from .simulated_cores import SerialPool, Simulated, calls_of
from .step_orders import WAKE, cut_evenly

# Parts of a sum, each of so many products at the least; bytes that a core stores, or reads of what another stored, in a microsecond.
PARTS, LEAST_PRODUCTS, RATE = (2, 4, 8), 64, 16e3
# Six pixels of sixteen channels, about as many as a kernel's registers hold at once.
LEAST_OUTPUTS = 96
MARKERS = markers("benchmarks.sums_in_parts")


def in_parts(does: Simulated, threads: int, products: int, size: int) -> tuple[int, Simulated]:
    """Return in how many parts a kernel's sums of so many products are the fastest, and what it then does; it stores `size` bytes."""
    best = (1, does)
    longest = max(range(len(does.loops)), key=lambda loop: sum(does.loops[loop][1]), default=None)
    if longest is None or len(does.loops[longest][1]) >= threads:
        return best
    tasks = does.loops[longest][1]
    for parts in PARTS:
        if parts * LEAST_PRODUCTS > products:
            break
        split = [each / parts for each in tasks for _ in range(parts)]
        asked = min(threads, len(split))
        adding = [2 * parts * size / RATE / asked] * asked
        loops = [*does.loops[:longest], (asked, split), *does.loops[longest + 1 :], (asked, adding)]
        found = replace(does, loops=loops)
        if found.makespan(WAKE) < best[1].makespan(WAKE):
            best = (parts, found)
    return best


def rows_of(threads: int, kernels: Mapping[str, Simulated], listed: int) -> list[list[str]]:
    """Return the lines of a bundle's kernels for a number of threads: all, and those that gain most by sums in parts."""
    cut = {signature: cut_evenly(does, threads) for signature, does in kernels.items()}
    parts, split, few = {}, {}, 0
    for signature, does in kernels.items():
        problem = parse_signature(signature)
        outputs = prod(problem.output_shape)
        parts[signature], split[signature] = in_parts(does, threads, problem.products, 4 * outputs)
        few += outputs < threads * LEAST_OUTPUTS

    def line(title: str, some: Sequence[str]) -> list[str]:
        ways = [[of[each] for each in some] for of in (kernels, split, cut)]
        times = [[sum(each.makespan(wake) for each in way) for wake in (None, WAKE)] for way in ways]
        work = [each.shared(threads) for each in ways[0]]
        shares = [[one / each.makespan() for one, each in zip(work, way, strict=True) if one] for way in ways]
        means = [f"{geometric_mean(each):.2f}" for each in shares]
        return [title, *(f"{alone:.0f} ({woken:.0f})" for alone, woken in times), *means]

    gains = {
        each: does.makespan(WAKE) - split[each].makespan(WAKE) for each, does in kernels.items() if parts[each] > 1
    }
    title = f"{len(kernels)} kernels, {few} of fewer than {LEAST_OUTPUTS} outputs a thread, {len(gains)} in parts"
    rows = [[str(threads), *line(title, list(kernels))]]
    for each in sorted(gains, key=lambda each: -gains[each])[:listed]:
        tasks = max((of for _, of in kernels[each].loops), key=sum)
        rows.append(["", *line(f"{each}: {len(tasks)} tasks, {parts[each]} parts", [each])])
    return rows


@print_errors
def main(argv: Sequence[str] | None = None) -> int:
    """Print the table of the bundles that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sums_in_parts", description=__doc__)
    parser.add_argument("bundles", type=Path, nargs="+", metavar="BUNDLE")
    parser.add_argument("--threads", default="16,64", help="numbers, with commas, default %(default)s")
    parser.add_argument("--list", type=int, default=5, metavar="N", help="kernels that gain most, default %(default)s")
    parser.add_argument("--update", type=Path, metavar="FILE", help="write the table between its markers there")
    arguments = parser.parse_args(argv)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        serial = SerialPool(Path(folder))
        for bundle in arguments.bundles:
            for threads in map(int, arguments.threads.split(",")):
                kernels = {name: serial.simulate(call) for name, call in calls_of(bundle, threads)}
                rows += rows_of(threads, kernels, arguments.list)
    ways = ("as it is", "sums in parts", "cut evenly")
    header = ["threads", "us", *ways, *(f"efficiency {way}" for way in ways)]
    show_simulated(header, rows, arguments.update, MARKERS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
