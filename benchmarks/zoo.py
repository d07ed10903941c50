"""Networks that others wrote (torchvision, timm, torchaudio, segmentation-models-pytorch, diffusers, spandrel) beside other libraries.

Weights are random, inputs fixed, nothing is downloaded. Each contender has a process of its own with equal threads, and they take
turns, so that all meet the same machine; answers are compared with PyTorch's in f32. Printed are medians in milliseconds, the
networks that lose most first; the ratio is the fastest peer's time by ours, above 1 ours is faster. `others` is the share of our
time that is outside our kernels, and `most` the operator that takes the most of it. With `--algebra`, `joined` is our time
without the algebra of fixed filters by that with it.
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
from tvmconv.errors import TvmconvError
from tvmconv.measuring.timing import summarize
from tvmconv.support.workers import Worker

from .machine import describe_machine, versions
from .network_runs import Report, measure_networks, print_end, take_turns
from .zoo_contenders import DTYPES, INDUCTOR, OURS, PEERS, WRITTEN, Answer, Task, library, measure, refusal
from .zoo_files import Preparation, prepare
from .zoo_networks import NETWORKS
from .zoo_results import ZooResult, ZooRow, losses_first, read_result

PACKAGES = ("apache-tvm", "diffusers", "segmentation-models-pytorch", "timm", "torchaudio", "torchvision", "tvmconv")
# Whose fixed filters are joined.
ALGEBRA = (
    "mobileone_s0",
    "repvgg_a0",
    "fastvit_t8",
    "repghostnet_100",
    "densenet121",
    "smp_unet",
    "smp_fpn",
    "vae_decoder",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Time networks; return 1 if one is wrong, or could not be timed."""
    arguments = _parse(argv)
    with tempfile.TemporaryDirectory() as temporary:

        def measured(network: str, report: Report) -> ZooRow | None:
            folder = (Path(arguments.folder or temporary) / network).absolute()
            _prepare(network, folder, arguments, report)
            return None if arguments.prepare else _row(network, folder, arguments, report)

        try:
            result = measure_networks(
                arguments.only, NETWORKS, _conditions(arguments), arguments.output, read_result, measured
            )
        except TvmconvError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    if arguments.prepare:
        return 0
    if arguments.json:
        print_json(asdict(result))
    else:
        _print(result)
    return int(sum(row.ours is not None for row in result.rows) < len(arguments.only))


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zoo", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", help=f"of {', '.join(NETWORKS)}; default: all")
    parser.add_argument(
        "--algebra",
        action="store_true",
        help=f"ours without the algebra of fixed filters, too; default networks: {', '.join(ALGEBRA)}",
    )
    parser.add_argument("--type", choices=DTYPES, default="f32", help="default %(default)s")
    parser.add_argument(
        "--peer",
        action="append",
        choices=PEERS,
        help=f"default: all but {INDUCTOR}, which compiles for minutes with a C++ compiler",
    )
    parser.add_argument(
        "--folder",
        help="keeps what is compiled and exported for another run, a folder a network; default: a temporary one",
    )
    parser.add_argument("--recompile", action="store_true", help="compile ours again, though it is in the folder")
    parser.add_argument("--prepare", action="store_true", help="compile and export into the folder, and time nothing")
    parser.add_argument("--rounds", type=int, default=5, help="default %(default)s")
    parser.add_argument("--seconds", type=float, default=0.5, help="of each in each round, default %(default)s")
    parser.add_argument("--threads", type=int, default=2, help="default %(default)s")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--output", type=Path, help="write the result to this JSON file, network by network; others in it stay"
    )
    arguments = parser.parse_args(argv)
    for name in ("rounds", "threads"):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name} is {getattr(arguments, name)}: give 1 or more")
    if arguments.prepare and not arguments.folder:
        parser.error("--prepare keeps what it makes: give --folder with it")
    arguments.only = list(dict.fromkeys(arguments.only or (ALGEBRA if arguments.algebra else NETWORKS)))
    arguments.peer = list(dict.fromkeys(arguments.peer or (peer for peer in PEERS if peer != INDUCTOR)))
    arguments.ours = (WRITTEN, OURS) if arguments.algebra else (OURS,)
    return arguments


def _conditions(arguments: argparse.Namespace) -> ZooResult:
    """Return a result without rows."""
    return ZooResult(
        machine=describe_machine(),
        versions=versions({*PACKAGES, "torch", *(PEERS[peer] for peer in arguments.peer)}),
        dtype=arguments.type,
        threads=arguments.threads,
        rounds=arguments.rounds,
        seconds=arguments.seconds,
    )


def _prepare(network: str, folder: Path, arguments: argparse.Namespace, report: Report) -> None:
    """Write what is not there yet, in a process of its own."""
    if arguments.recompile:
        for file in (library(folder, arguments.type, each) for each in arguments.ours):
            for each in (file, refusal(file)):
                each.unlink(missing_ok=True)
    report("compiled")
    worker: Worker[Preparation, None] = Worker(prepare, os.cpu_count() or 1, torch=True)
    try:
        worker.call(Preparation(network, arguments.type, str(folder), (*arguments.ours, *arguments.peer)))
    finally:
        worker.close()


def _row(network: str, folder: Path, arguments: argparse.Namespace, report: Report) -> ZooRow:
    load = os.getloadavg()[0]
    contenders = (*arguments.peer, *arguments.ours)  # PyTorch first: its error in bf16 says what is allowed
    workers = {name: Worker(measure, arguments.threads, torch=PEERS.get(name) == "torch") for name in contenders}
    task = Task(network, OURS, arguments.type, str(folder), arguments.threads, arguments.seconds)
    turns = {name: (workers[name], replace(task, contender=name)) for name in contenders}
    try:
        answers = take_turns(turns, arguments.rounds, Answer(), report)
        if answers[OURS].samples:
            parts = take_turns({OURS: (workers[OURS], replace(task, parts=True))}, 1, Answer(), report)
            answers[OURS] = replace(answers[OURS], operators=parts[OURS].operators)
    finally:
        for worker in workers.values():
            worker.close()
    timings = {name: summarize(answer.samples) for name, answer in answers.items() if answer.samples}
    written = timings.pop(WRITTEN, None)
    # Where files lie is nobody's business but this machine's.
    refused = {name: each.unsupported.replace(f"{folder}/", "") for name, each in answers.items() if each.unsupported}
    return ZooRow(
        network=network,
        kind=NETWORKS[network].kind,
        ours=timings.pop(OURS, None),
        peers=timings,
        unsupported=refused,
        errors={name: answer.error for name, answer in answers.items() if answer.samples},
        operators=answers[OURS].operators,
        date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        load=load,
        written=written,
    )


def _print(result: ZooResult) -> None:
    """Print a line for each network, losses first, and what did not take part."""
    names = [peer for peer in PEERS if any(peer in row.peers for row in result.rows)]
    is_algebra = any(row.written for row in result.rows)
    table = []
    for row in losses_first(result.rows):
        peers = [f"{1e3 * row.peers[name].median:.2f}" if name in row.peers else "-" for name in names]
        ours = "-" if row.ours is None else f"{1e3 * row.ours.median:.2f}"
        ratio = "-" if row.ratio is None else f"{row.ratio:.2f}"
        others = [each for each in row.operators if not each.ours]
        total = sum(each.seconds for each in row.operators) or 1.0
        share = f"{100 * sum(each.seconds for each in others) / total:.0f}"
        written = []
        if is_algebra:
            joined = "-" if row.written is None or row.ours is None else f"{row.written.median / row.ours.median:.2f}"
            written = ["-" if row.written is None else f"{1e3 * row.written.median:.2f}", joined]
        table.append((row.network, ours, *written, *peers, ratio, share, others[0].name if others else "-"))
    columns = (WRITTEN, "joined") if is_algebra else ()
    print_table(("network", OURS, *columns, *names, "ratio", "others %", "most"), table)
    print_end(result.rows)


if __name__ == "__main__":
    sys.exit(main())
