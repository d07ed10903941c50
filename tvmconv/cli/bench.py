"""`tvmconv bench`: time a bundle's kernels."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ..runtime.selection import BACKENDS
from ..signature import parse_signature
from .output import print_json, print_table, progress_bar, warn_untimed
from .parsing import add_command, add_json, add_timing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..building.bench import BenchRow
    from ..measuring.peak import Peak
    from ..measuring.timing import Timing
    from .parsing import Subparsers

_HEADER = (
    "signature",
    "target",
    "algorithm",
    "origin",
    "median us",
    "min us",
    "GFLOP/s",
    "% of peak",
    "GB/s",
    "packed us",
    "% of peak",
)
EXAMPLE = "  tvmconv bench resnet50.bundle\n  tvmconv bench resnet50.bundle --threads 1 --json\n"


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers,
        "bench",
        "Time every kernel of a bundle, with plain and, where it packs its filter, prepacked filters (packed us, the median). "
        "GFLOP/s counts the formula's multiplications and additions, so Winograd may exceed the peak: the multiply-adds measured "
        "on this machine, in bf16 for bf16 kernels if the CPU has its dot product, else in f32. Without a C compiler the peak is "
        "unknown.",
        EXAMPLE,
        run,
    )
    parser.add_argument("bundle", metavar="BUNDLE", help="the bundle's folder")
    add_timing(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the time of each kernel."""
    from ..building.bench import bench
    from ..measuring import peak
    from ..reporting.kernels import confirm
    from ..runtime.bundle import read_bundle
    from ..runtime.processors import kernel_threads
    from ..runtime.selection import runnable

    bundle = read_bundle(arguments.bundle)
    runnable(bundle)  # raises an error before measuring if no kernel can run here
    threads = arguments.threads or kernel_threads()
    limits = peak.measure(threads)
    with progress_bar("timing") as progress:
        rows = bench(arguments.bundle, seconds=arguments.seconds, threads=threads, progress=progress)
    limits = confirm(limits, rows)
    warn_untimed(bundle)
    if arguments.json:
        _print_json(rows, threads, limits)
    else:
        print_table(_HEADER, [_cells(row, limits) for row in rows])
        print(_note(threads, limits), file=sys.stderr)
    return 0


def _print_json(rows: Sequence[BenchRow], threads: int, limits: Peak | None) -> None:
    kernels = [
        {
            **asdict(row),
            "peak_share": _share(row, row.timing, limits),
            "packed_peak_share": _share(row, row.packed, limits),
        }
        for row in rows
    ]
    print_json({"threads": threads, "peak": limits and asdict(limits), "kernels": kernels})


def _note(threads: int, limits: Peak | None) -> str:
    """Return a line with the threads, and the limits that percentages refer to."""
    if limits is None:
        return f"{threads} threads; the peak is unknown: no C compiler with OpenMP to measure it with, or other programs computed meanwhile"
    dots = f", {limits.bf16_flops / 1e9:.1f} in bf16" if limits.bf16_flops else ""
    dots += f", {limits.integer_flops / 1e9:.1f} in 8-bit integers" if limits.integer_flops else ""
    return (
        f"{threads} threads; peak: {limits.flops / 1e9:.1f} GFLOP/s in f32{dots}; "
        f"memory: {limits.bandwidth / 1e9:.1f} GB/s read"
    )


def _share(row: BenchRow, timing: Timing | None, limits: Peak | None) -> float | None:
    if limits is None or timing is None or not BACKENDS[row.kind].has_peak:
        return None
    return limits.share(row.flops / timing.median, parse_signature(row.signature).dtype)


def _cells(row: BenchRow, limits: Peak | None) -> list[Any]:
    seconds = row.timing.median
    return [
        row.signature,
        row.target,
        row.algorithm,
        row.origin,
        f"{seconds * 1e6:.1f}",
        f"{row.timing.least * 1e6:.1f}",
        f"{row.flops / seconds / 1e9:.1f}",
        _percent(_share(row, row.timing, limits)),
        f"{row.nbytes / seconds / 1e9:.1f}",
        f"{row.packed.median * 1e6:.1f}" if row.packed else "-",
        _percent(_share(row, row.packed, limits)),
    ]


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}"
