"""Make the page of the zoo's networks from what `benchmarks.zoo` wrote: tables in Markdown, losses first.

``--update FILE`` writes them between the two markers of FILE in the place of printing them.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from .commands import print_errors
from .network_results import ratio_cells, span_cells
from .report import cpu_of, markers, show, table
from .zoo_contenders import PEERS, Operator
from .zoo_results import ZooResult, ZooRow, losses_first, read_result

MARKERS = markers("benchmarks.zoo_report")
SUMMARY = ("type, CPU", "networks", "geometric mean", "worst", "below 0.95", "below 1", "not computed")
CLASSES_HEADER = ("what lies between kernels", "networks", "ms", "of all our time", "GB/s")
CONDITIONS = ("type, CPU", "measured on", "threads", "rounds, seconds", "from", "to", "load at most", "versions")
# Of what lies between kernels, by words of TVM's names of functions; the first that is found decides.
CLASSES = {
    "attention": "attention",
    "softmax": "softmax",
    "matmul|batch_matmul|dense|einsum": "products of two data tensors",
    "conv": "convolutions without a kernel",
    "layer_norm|group_norm|instance_norm|rms_norm|batch_norm|variance": "normalizations",
    "pool": "pools",
    "resize|upsample": "resizing",
    "mean|sum|max_reduce|reduce": "reductions",
    "concatenate|stack": "concatenations",
    "take|gather|scatter|index": "gathers",
    "strided_slice|split|slice|roll|pad": "slices, pads and rolls",
    "transpose|layout_transform|permute|reshape|expand|copy": "transposes and copies",
}
MAPS = "maps"


@print_errors
def main(argv: Sequence[str] | None = None) -> int:
    """Run the report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zoo_report", description=__doc__)
    parser.add_argument("results", nargs="+", type=Path, metavar="RESULT", help="files that benchmarks.zoo wrote")
    parser.add_argument("--update", type=Path, metavar="FILE", help="write the tables between the markers of this file")
    arguments = parser.parse_args(argv)
    text = report([read_result(path) for path in arguments.results])
    show(text, arguments.update, MARKERS)
    return 0


def report(results: Iterable[ZooResult]) -> str:
    """Return the tables of results, and how they were measured, in Markdown."""
    shown = sorted(results, key=lambda result: (result.dtype != "f32", result.machine))
    if not shown:
        return "No results are committed yet."
    lines = table(SUMMARY, map(_summary, shown))
    for result in shown:
        lines += ["", f"### {title(result)}", "", *_networks(result)]
        lines += ["", *table(CLASSES_HEADER, _classes(result))]
        refused = [f"{row.network}, {name}: {why}" for row in result.rows for name, why in row.unsupported.items()]
        lines += ["", "Not computed:", "", *(f"- {each}" for each in refused)] if refused else []
    return "\n".join((*lines, "", "### Conditions", "", *table(CONDITIONS, map(_conditions, shown))))


def title(result: ZooResult) -> str:
    """Return type and CPU in a few words."""
    return f"{result.dtype}, {cpu_of(result.machine)}"


def class_of(operator: Operator) -> str:
    """Return what kind of operator one between kernels is."""
    return next((name for words, name in CLASSES.items() if re.search(words, operator.name)), MAPS)


def _summary(result: ZooResult) -> tuple[str, ...]:
    """Return the cells of SUMMARY."""
    return title(result), *ratio_cells(result.rows, 0.95, 1), str(sum(row.ours is None for row in result.rows))


def _networks(result: ZooResult) -> list[str]:
    """Return a table with a line for each network."""
    peers = [peer for peer in PEERS if any(peer in row.peers for row in result.rows)]
    header = ("network", "kind", "tvmconv", *peers, "ratio", "of least", "between kernels", "most of it")
    return table(header, (_cells(row, peers) for row in losses_first(result.rows)))


def _cells(row: ZooRow, peers: Sequence[str]) -> tuple[str, ...]:
    times = [f"{1e3 * row.peers[peer].median:.2f}" if peer in row.peers else "" for peer in peers]
    total = sum(each.seconds for each in row.operators)
    between: dict[str, float] = {}
    for each in row.operators:
        if not each.ours:
            between[class_of(each)] = between.get(class_of(each), 0.0) + each.seconds
    most = sorted(between, key=between.__getitem__, reverse=True)[:2]
    return (
        row.network,
        row.kind,
        "" if row.ours is None else f"{1e3 * row.ours.median:.2f}",
        *(f"**{time}**" if peer == row.fastest else time for peer, time in zip(peers, times, strict=True)),
        "" if row.ratio is None else f"{row.ratio:.2f}",
        "" if row.least_ratio is None else f"{row.least_ratio:.2f}",
        f"{100 * sum(between.values()) / total:.0f} %" if total else "",
        ", ".join(f"{name} {1e3 * between[name]:.2f}" for name in most),
    )


def _classes(result: ZooResult) -> list[tuple[str, ...]]:
    """Return the cells of CLASSES_HEADER, what costs most over all networks first."""
    total = sum(each.seconds for row in result.rows for each in row.operators) or 1.0
    found: dict[str, float] = {}
    moved: dict[str, int] = {}
    networks: dict[str, set[str]] = {}
    for row in result.rows:
        for each in row.operators:
            if not each.ours:
                name = class_of(each)
                found[name] = found.get(name, 0.0) + each.seconds
                moved[name] = moved.get(name, 0) + each.bytes
                networks.setdefault(name, set()).add(row.network)
    ordered = sorted(found, key=found.__getitem__, reverse=True)
    return [
        (
            name,
            str(len(networks[name])),
            f"{1e3 * found[name]:.1f}",
            f"{100 * found[name] / total:.1f} %",
            f"{moved[name] / found[name] / 1e9:.1f}" if found[name] else "",
        )
        for name in ordered
    ]


def _conditions(result: ZooResult) -> tuple[str, ...]:
    """Return the cells of CONDITIONS."""
    return (
        title(result),
        result.machine,
        str(result.threads),
        f"{result.rounds}, {result.seconds:g}",
        *span_cells(result.rows),
        ", ".join(f"{package} {version}" for package, version in sorted(result.versions.items())),
    )


if __name__ == "__main__":
    sys.exit(main())
