"""`tvmconv verify`: check a bundle's kernels against the reference."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING

from .output import print_json, print_table, progress_bar
from .parsing import add_command, add_json

if TYPE_CHECKING:
    from .parsing import Subparsers

EXAMPLE = "  tvmconv verify resnet50.bundle\n  tvmconv verify resnet50.bundle --json\n"


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers,
        "verify",
        "Check every kernel of a bundle against the reference, with inputs for which there is one right answer, "
        "and write into the bundle which are right. "
        "Exits with 1 if one is wrong.",
        EXAMPLE,
        run,
    )
    parser.add_argument("bundle", metavar="BUNDLE", help="the bundle's folder")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print a verdict for each kernel."""
    from ..runtime.verify import verify

    with progress_bar("checking") as progress:
        verdicts = verify(arguments.bundle, progress=progress)
    if arguments.json:
        print_json([asdict(verdict) for verdict in verdicts])
    else:
        rows = [(v.signature, v.target, v.algorithm, v.status, v.detail) for v in verdicts]
        print_table(("signature", "target", "algorithm", "status", "detail"), rows)
    counts = Counter(verdict.status for verdict in verdicts)
    print(", ".join(f"{counts[status]} {status}" for status in ("right", "wrong", "skipped")), file=sys.stderr)
    return 1 if counts["wrong"] else 0
