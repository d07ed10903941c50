"""`tvmconv verify`: check a bundle's kernels against the reference, or that a network's file is as it was compiled."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from .output import print_json, print_table, progress_bar
from .parsing import add_command, add_json

if TYPE_CHECKING:
    from .parsing import Subparsers

EXAMPLE = """\
  tvmconv verify resnet50.bundle
  tvmconv verify resnet50.bundle --json
  tvmconv verify resnet50.so
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers,
        "verify",
        "Check every kernel of a bundle against the reference, and record the results in the bundle. "
        "The inputs have exactly one right answer. Exits with 1 if a kernel is wrong. For a network's file, only its checksum "
        "is verified.",
        EXAMPLE,
        run,
    )
    parser.add_argument("bundle", metavar="BUNDLE", help="the bundle's folder, or a network's file")
    add_json(parser)


# Statuses in tables; in JSON they are those of Python.
_WORDS = {"right": "passed", "wrong": "failed", "skipped": "skipped"}


def run(arguments: argparse.Namespace) -> int:
    """Print a verdict for each kernel, or on a network's file."""
    from ..runtime.networks.file import read_file
    from ..runtime.verify import verify

    path = Path(arguments.bundle)
    if path.is_file():
        read_file(path)
        if arguments.json:
            print_json([{"network": str(path), "status": "right"}])
        else:
            print(f"{path}: its code, weights and description match their checksum")
        return 0
    with progress_bar("checking") as progress:
        verdicts = verify(arguments.bundle, progress=progress)
    if arguments.json:
        print_json([asdict(verdict) for verdict in verdicts])
    else:
        rows = [(v.signature, v.target, v.algorithm, _WORDS[v.status], v.detail) for v in verdicts]
        print_table(("signature", "target", "algorithm", "status", "detail"), rows)
    counts = Counter(verdict.status for verdict in verdicts)
    print(", ".join(f"{counts[status]} {word}" for status, word in _WORDS.items()), file=sys.stderr)
    return 1 if counts["wrong"] else 0
