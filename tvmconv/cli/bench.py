"""`tvmconv bench`: time a bundle's kernels."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from .output import print_json, print_table, progress_bar
from .parsing import add_command, add_json, positive, positive_seconds

if TYPE_CHECKING:
    from ..bench import Row
    from ..peak import Peak
    from .parsing import Subparsers

EXAMPLE = "  tvmconv bench resnet50.bundle\n  tvmconv bench resnet50.bundle --threads 1 --json\n"


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers,
        "bench",
        "Time every kernel of a bundle; where it lays its filter out anew, also with the filter packed ahead (packed us, "
        "the median). GFLOP/s counts the multiplications and additions of the formula, so a transform "
        "(Winograd) may pass the peak: the f32 multiply-adds that this machine was measured to do; "
        "without a C compiler to measure it with, that is unknown.",
        EXAMPLE,
        run,
    )
    parser.add_argument("bundle", metavar="BUNDLE", help="the bundle's folder")
    parser.add_argument("--threads", type=positive, metavar="N", help="default: all processors, or OMP_NUM_THREADS")
    parser.add_argument(
        "--seconds",
        type=positive_seconds,
        default=0.2,
        metavar="S",
        help="to spend on each kernel and way (default 0.2)",
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the time of each kernel."""
    from .. import peak
    from ..bench import bench
    from ..cpu import kernel_threads

    threads = arguments.threads or kernel_threads()
    limits = peak.measure(threads)
    with progress_bar("timing") as progress:
        rows = bench(arguments.bundle, seconds=arguments.seconds, threads=threads, progress=progress)
    if arguments.json:
        print_json(
            {
                "threads": threads,
                "peak": limits and asdict(limits),
                "kernels": [{**asdict(row), "peak_share": _share(row, limits)} for row in rows],
            }
        )
        return 0
    header = (
        "signature",
        "target",
        "algorithm",
        "origin",
        "median us",
        "min us",
        "packed us",
        "GFLOP/s",
        "% of peak",
        "GB/s",
    )
    print_table(header, [_cells(row, limits) for row in rows])
    if limits:
        print(
            f"{threads} threads; peak: {limits.flops / 1e9:.1f} GFLOP/s in f32; memory: {limits.bandwidth / 1e9:.1f} GB/s read",
            file=sys.stderr,
        )
    else:
        print(f"{threads} threads; the peak is unknown: no C compiler with OpenMP to measure it with", file=sys.stderr)
    return 0


def _share(row: Row, limits: Peak | None) -> float | None:
    if limits is None or row.kind != "cpu":
        return None
    return row.flops / row.timing.median / limits.flops


def _cells(row: Row, limits: Peak | None) -> list[Any]:
    seconds, share = row.timing.median, _share(row, limits)
    return [
        row.signature,
        row.target,
        row.algorithm,
        row.origin,
        f"{seconds * 1e6:.1f}",
        f"{row.timing.least * 1e6:.1f}",
        f"{row.packed.median * 1e6:.1f}" if row.packed else "-",
        f"{row.flops / seconds / 1e9:.1f}",
        "-" if share is None else f"{100 * share:.1f}",
        f"{row.nbytes / seconds / 1e9:.1f}",
    ]
