"""Whole networks: ours beside PyTorch, torch.compile, OpenVINO and onnxruntime.

Each contender has a process of its own with equal threads, and they take turns, so that all meet the same machine; the answers
of all are compared. Printed are medians in milliseconds; the ratio is the fastest peer's time by ours, above 1 ours is faster.
`kernels` is the time of our kernels called one after the other with what the network gives them, `others` that of all else.
`by parts` is the network's time by both: what it takes beyond 1 is spent between them.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import datetime, timezone
from pathlib import Path

from tvmconv.cli.output import print_json, print_table
from tvmconv.measuring.timing import summarize
from tvmconv.support.workers import Worker

from .commands import print_errors
from .compare import PACKAGES
from .machine import CLOCKS, describe_machine, versions
from .models import NETWORKS
from .network import Answer, Task, measure, write
from .network_contenders import DTYPES, OURS
from .network_parts import KERNELS, OTHERS
from .network_results import PEERS, NetworkResult, NetworkRow, read_result
from .network_runs import Report, measure_networks, print_end, take_turns


@print_errors
def main(argv: Sequence[str] | None = None) -> int:
    """Time networks; return 1 if one could not be."""
    arguments = _parse(argv)

    def measured(network: str, report: Report) -> NetworkRow:
        with tempfile.TemporaryDirectory() as folder:
            return _row(network, Path(folder), arguments, report)

    result = measure_networks(
        arguments.networks, NETWORKS, _conditions(arguments), arguments.output, read_result, measured
    )
    if arguments.json:
        print_json(asdict(result))
    else:
        _print(result)
    return int(len(result.rows) < len(arguments.networks))


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.networks", description=__doc__)
    parser.add_argument("networks", nargs="*", help=f"of {', '.join(NETWORKS)}; default: all")
    parser.add_argument("--dtype", choices=DTYPES, default="f32", help="default %(default)s")
    parser.add_argument("--batch", type=int, default=1, help="default %(default)s")
    parser.add_argument("--peer", action="append", choices=PEERS, help="default: all")
    parser.add_argument("--bundles", help="folder that keeps our kernels for another run; default: a temporary one")
    parser.add_argument("--rounds", type=int, default=5, help="default %(default)s")
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="of each contender in each round, default %(default)s"
    )
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="default: all")
    parser.add_argument(
        "--clock",
        choices=CLOCKS,
        default="wall",
        help="time by the wall clock, or by what the process had of the processors, for one thread on a busy machine; default %(default)s",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--output", type=Path, help="write the result to this JSON file, network by network; others in it stay"
    )
    arguments = parser.parse_args(argv)
    for name in ("batch", "rounds", "threads"):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name} is {getattr(arguments, name)}: give 1 or more")
    if arguments.clock == "cpu" and arguments.threads > 1:
        parser.error("--clock cpu adds up the time of all threads, waiting ones too: give --threads 1 with it")
    arguments.networks = list(dict.fromkeys(arguments.networks)) or list(NETWORKS)
    arguments.peer = list(dict.fromkeys(arguments.peer or PEERS))
    return arguments


def _conditions(arguments: argparse.Namespace) -> NetworkResult:
    """Return a result without rows."""
    return NetworkResult(
        machine=describe_machine(),
        versions=versions({*PACKAGES, "torch", *(PEERS[peer] for peer in arguments.peer)}),
        dtype=arguments.dtype,
        batch=arguments.batch,
        threads=arguments.threads,
        rounds=arguments.rounds,
        seconds=arguments.seconds,
        clock=arguments.clock,
    )


def _row(network: str, folder: Path, arguments: argparse.Namespace, report: Report) -> NetworkRow:
    load = os.getloadavg()[0]
    report("its answer")
    write(network, arguments.batch, folder)
    bundle = Path(arguments.bundles or folder) / f"{network}.bundle"

    parts = {OURS: "", KERNELS: KERNELS, OTHERS: OTHERS}
    task = Task(network, OURS, arguments.dtype, str(folder), str(bundle), arguments.seconds, arguments.clock)
    workers = {name: Worker(measure, arguments.threads, torch=True) for name in (OURS, *arguments.peer)}
    turns = {name: (workers[OURS], replace(task, part=part)) for name, part in parts.items()}
    turns |= {peer: (workers[peer], replace(task, contender=peer)) for peer in arguments.peer}
    try:
        answers = take_turns(turns, arguments.rounds, Answer(), report, needed=parts)
    finally:
        for worker in workers.values():
            worker.close()
    timings = {name: summarize(answer.samples) for name, answer in answers.items() if answer.samples}
    return NetworkRow(
        network=network,
        ours=timings.pop(OURS),
        kernels=timings.pop(KERNELS),
        others=timings.pop(OTHERS),
        peers=timings,
        unsupported={name: answer.unsupported for name, answer in answers.items() if answer.unsupported},
        by_torch=answers[OURS].by_torch,
        date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        load=load,
    )


def _print(result: NetworkResult) -> None:
    """Print a line for each network, and what did not take part."""
    names = list(dict.fromkeys(name for row in result.rows for name in row.peers))
    table = []
    for row in result.rows:
        peers = [f"{1e3 * row.peers[name].median:.2f}" if name in row.peers else "-" for name in names]
        ratio = "-" if row.ratio is None else f"{row.ratio:.2f}"
        parts = (f"{1e3 * row.kernels.median:.2f}", f"{1e3 * row.others.median:.2f}", f"{row.by_parts:.2f}")
        table.append((row.network, f"{1e3 * row.ours.median:.2f}", *peers, ratio, *parts))
    print_table(("network", OURS, *names, "ratio", "kernels", "others", "by parts"), table)
    print_end(result.rows)
    for row in result.rows:
        for layer in row.by_torch:
            print(f"{row.network}: PyTorch computes {layer}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
