"""`tvmconv list`: what a bundle holds."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from .output import print_json, print_table
from .parsing import add_command, add_json

if TYPE_CHECKING:
    from .parsing import Subparsers

EXAMPLE = "  tvmconv list resnet50.bundle\n  tvmconv list resnet50.bundle --json\n"


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(subparsers, "list", "List the kernels of a bundle.", EXAMPLE, run)
    parser.add_argument("bundle", metavar="BUNDLE", help="the bundle's folder")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print a line for each kernel."""
    from ..bundle import read_bundle
    from ..selection import obstacle

    bundle = read_bundle(arguments.bundle)
    obstacles = {name: obstacle(target) for name, target in bundle.targets.items()}
    if arguments.json:
        print_json([{**asdict(entry), "obstacle": obstacles[entry.target]} for entry in bundle.entries])
        return 0
    rows = [
        (
            entry.signature,
            entry.target,
            "no" if obstacles[entry.target] else "yes",
            entry.algorithm,
            entry.origin,
            f"{entry.measured['seconds'] * 1e6:.1f}" if entry.measured else "-",
            f"{entry.error['measure']} {entry.error['value']:g}" if entry.error else "not verified",
        )
        for entry in bundle.entries
    ]
    print_table(("signature", "target", "runs here", "algorithm", "origin", "measured us", "error"), rows)
    for name, why in obstacles.items():
        if why:
            print(f"{name}: {why}", file=sys.stderr)
    return 0
