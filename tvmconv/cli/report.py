"""`tvmconv report`: a page about a bundle's kernels, or a network, on this machine."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import TvmconvError
from .output import check_output, progress_bar, warn_untimed
from .parsing import add_command, add_timing

if TYPE_CHECKING:
    from .parsing import Subparsers

EXAMPLE = """\
  tvmconv report resnet50.bundle -o report.html
  tvmconv report resnet50.so -o report.html
  tvmconv report resnet50.bundle --against yesterday.bundle -o report.html
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers,
        "report",
        "Time every kernel of a bundle, or every operator of a network, and write an HTML report: the machine and its limits, a "
        "roofline, a table of kernels, tuning curves, and ratios to another bundle. The page is one self-contained file.",
        EXAMPLE,
        run,
    )
    parser.add_argument("bundle", metavar="BUNDLE", help="the bundle's folder, or a network's file")
    parser.add_argument(
        "-o", "--output", required=True, metavar="FILE.html", help="the page to write; an existing one is replaced"
    )
    parser.add_argument(
        "--against",
        metavar="BUNDLE",
        help="another bundle, timed in turn with this one",
    )
    parser.add_argument(
        "--records",
        metavar="FOLDER",
        help="folder with the trials for tuning curves (default: $XDG_DATA_HOME/tvmconv or ~/.local/share/tvmconv)",
    )
    add_timing(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write the page; print its path."""
    if Path(arguments.bundle).is_file():
        return _report_network(arguments)
    from datetime import datetime, timezone

    from ..measuring import peak
    from ..reporting.comparison import with_bundle
    from ..reporting.curves import read_curves
    from ..reporting.kernels import confirm, measure
    from ..reporting.page import Page, render
    from ..runtime.bundle import read_bundle
    from ..runtime.processors import kernel_threads
    from ..runtime.selection import runnable
    from ..support.files import write_whole
    from ..support.user import user_folder

    output = Path(arguments.output)
    check_output(output)
    bundle = read_bundle(arguments.bundle)
    runnable(bundle)  # raises an error before measuring if no kernel can run here
    other = read_bundle(arguments.against) if arguments.against else None
    records = Path(arguments.records) if arguments.records else user_folder()
    if arguments.records and not records.is_dir():
        raise TvmconvError(f"--records {records} is not a folder; give the one that tvmconv tune --records wrote to")
    curves = read_curves(records, bundle)
    if arguments.records and not curves:
        print(f"{records} has no trials of the bundle's kernels: no tuning curves", file=sys.stderr)
    threads, load = arguments.threads or kernel_threads(), os.getloadavg()[0]
    limits = peak.measure(threads)
    with progress_bar("timing") as progress:
        lines, pairs = measure(bundle, other, arguments.seconds, threads, progress)
    limits = confirm(limits, [line.row for line in lines if line.row is not None])
    comparison = with_bundle(other, pairs) if other is not None else None
    now = datetime.now(timezone.utc)
    page = render(Page(bundle, lines, limits, threads, now, load, comparison, curves))
    write_whole(output, page.encode())
    warn_untimed(bundle)
    print(output)
    return 0


def _report_network(arguments: argparse.Namespace) -> int:
    from datetime import datetime, timezone

    from ..measuring import peak
    from ..measuring.latency import time_callers
    from ..reporting.network_page import render_network
    from ..runtime.networks.network import load_network
    from ..runtime.processors import kernel_threads
    from ..support.files import write_whole

    if arguments.against or arguments.records:
        raise TvmconvError(
            "--against and --records are for bundles; to compare networks, use tvmconv run --bench --against"
        )
    output = Path(arguments.output)
    check_output(output, arguments.bundle)
    if arguments.threads:
        os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
    network = load_network(arguments.bundle)
    threads, load = kernel_threads(), os.getloadavg()[0]
    limits, arrays = peak.measure(threads), network.random_inputs()
    whole = time_callers([network.call(arrays)], arguments.seconds)
    operators = network.operators(arrays, arguments.seconds)
    page = render_network(network, whole, operators, limits, threads, datetime.now(timezone.utc), load)
    write_whole(output, page.encode())
    print(output)
    return 0
