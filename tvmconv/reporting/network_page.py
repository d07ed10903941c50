"""The page of a network: its time, that of each operator, and its kernels beside the machine's limits."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from html import escape
from typing import Any

from ..building.bench import BenchRow
from ..family_text import is_family
from ..measuring.latency import Latency
from ..measuring.peak import Peak
from ..measuring.timing import Timing
from ..runtime.networks.network import Network, Operator
from ..signature import parse_signature
from .document import Facts, document, machine_facts
from .kernel_table import signature_cell
from .kernels import confirm, roof
from .page import roofline_note
from .roofline import draw_roofline
from .table import ABSENT, Cell, Column, draw_table, number, words

COLUMNS = (
    Column("operator", "the problem of a kernel, or what a function between kernels computes", numeric=False),
    Column("by", "a kernel for the convolution or product, or a function between them", numeric=False),
    Column("algorithm", "how it computes", numeric=False),
    Column("calls", "in a call of the network"),
    Column("us", "microseconds of all these calls, the least of all times"),
    Column("% of time", "of all operators"),
    Column("GFLOP/s", "operations of the formula a second"),
    Column("% of roof", "of what the machine's multiply-adds, or its cache, allow"),
    Column("KiB", "read and written by these calls, each array once"),
)
_NOTE = "<p class='muted'>A click on a header sorts. Each operator is timed in calls of the whole network.</p>"


def render_network(
    network: Network,
    whole: Latency,
    operators: Sequence[Operator],
    limits: Peak | None,
    threads: int,
    date: datetime,
    load: float,
) -> str:
    """Return the page of a network that was timed as a whole and by operator."""
    algorithms = {row["signature"]: (row["algorithm"], row["origin"]) for row in network.description["report"]}
    # Operations of kernels for free extents are not known.
    rows = [
        _bench_row(each, network, *algorithms[each.name]) if each.ours and not is_family(each.name) else None
        for each in operators
    ]
    limits = confirm(limits, [row for row in rows if row is not None])
    anchors = {(each.name, network.description["target"]): f"o{index}" for index, each in enumerate(operators)}
    total = sum(each.seconds for each in operators) or 1.0
    lines = (
        (f"o{index}", _cells(each, row, algorithms.get(each.name, ("-",)), total, limits))
        for index, (each, row) in enumerate(zip(operators, rows, strict=True))
    )
    drawn = [row for row in rows if row is not None and row.flops]
    sections = [("operators", "Operators", _NOTE + draw_table("operators", COLUMNS, lines))]
    if drawn:
        sections.insert(
            0, ("roofline", "Roofline", draw_roofline(drawn, limits, anchors) + roofline_note(drawn, limits))
        )
    joined = network.description.get("rewrites") or []
    if joined:
        text = "".join(f"<li>{escape(line)}</li>" for line in joined)
        sections.append(("joined", "Joined filters", f"<ul>{text}</ul>"))
    facts = [("Machine", machine_facts(limits, threads, load)), ("Network", _network(network))]
    return document(network.file.path.name, _summary(whole, operators, total), sections, facts, date, threads, load)


def _bench_row(each: Operator, network: Network, algorithm: str, origin: str) -> BenchRow:
    problem, seconds = parse_signature(each.name), each.seconds / each.calls
    timing = Timing(seconds, seconds, each.calls)
    target = network.description["target"]
    return BenchRow(each.name, target, "cpu", algorithm, origin, problem.flops, problem.nbytes, timing, None)


def _cells(
    each: Operator, row: BenchRow | None, algorithm: Sequence[str], total: float, limits: Peak | None
) -> list[Cell]:
    own = [words(*algorithm), ABSENT, ABSENT]
    if row is not None:
        rate, limit = row.flops / row.timing.median, roof(row, limits)
        own[1:] = [number(rate, 1e-9), number(rate / limit, 100) if limit else ABSENT]
    return [
        signature_cell(each.name) if row is not None else words(each.name),
        words("kernel" if each.ours else "between"),
        own[0],
        number(each.calls, digits=0),
        number(each.seconds, 1e6),
        number(each.seconds / total, 100),
        *own[1:],
        number(each.bytes, 1 / 1024),
    ]


def _summary(whole: Latency, operators: Sequence[Operator], total: float) -> str:
    ours = sum(each.seconds for each in operators if each.ours) / total
    return (
        f"{whole.median * 1e3:.3f} ms a call (minimum {whole.least * 1e3:.3f}, p99 {whole.p99 * 1e3:.3f});"
        f" {ours:.0%} of the operators' time in kernels."
    )


def _network(network: Network) -> Facts:
    told: dict[str, Any] = network.description
    sizes = network.file.footprint
    return [
        ("tvmconv", told["tvmconv"]),
        ("TVM", told["tvm"]),
        (f"target {told['target']}", " ".join(told["features"])),
        ("inputs", ", ".join(map(str, network.inputs))),
        ("outputs", ", ".join(map(str, network.outputs))),
        ("model", f"{sizes.model / 2**20:.2f} MiB"),
        ("weights", f"{sizes.weights / 2**20:.2f} MiB"),
        ("activations", f"{sizes.activations / 2**20:.2f} MiB"),
    ]
