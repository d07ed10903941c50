"""`tvmconv explain`: why a kernel is found or not."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from .output import print_json, print_table
from .parsing import add_command, add_json

if TYPE_CHECKING:
    from .parsing import Subparsers

EXAMPLE = "  tvmconv explain conv2d-n1-i64x56x56-o64x56x56-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32 resnet50.bundle\n"


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers,
        "explain",
        "Say which kernel of some bundles serves a signature and why, or what is nearest and how to add it. "
        "Exits with 1 if none serves it.",
        EXAMPLE,
        run,
    )
    parser.add_argument("signature", metavar="SIGNATURE", help="see: tvmconv sig --help")
    parser.add_argument("bundles", nargs="+", metavar="BUNDLE", help="the folders of one or several bundles")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the explanation."""
    from ..bundle import read_bundle
    from ..explain import explain
    from ..selection import tables
    from ..signature import parse_signature

    problem = parse_signature(arguments.signature)
    bundles = [read_bundle(path) for path in arguments.bundles]
    explanation = explain(problem, bundles, tables(bundles))
    if arguments.json:
        print_json({**asdict(explanation), "found": explanation.found})
        return 0 if explanation.found else 1
    if explanation.variants:
        rows = [
            (v.bundle, v.target, v.algorithm, v.origin, "taken" if v.taken else "rejected", v.reason)
            for v in explanation.variants
        ]
        print_table(("bundle", "target", "algorithm", "origin", "verdict", "reason"), rows)
        for variant in explanation.variants:
            if variant.transferred_from:
                print(f"the schedule for {variant.target} was tuned for {variant.transferred_from}")
    else:
        print(f"there is no kernel for {explanation.signature}")
    if explanation.nearest is not None:
        print(f"the nearest is {explanation.nearest}")
        print_table(
            ("field", "asked", "nearest"), [(d.field, str(d.asked), str(d.nearest)) for d in explanation.differences]
        )
    if explanation.command is not None:
        print(f"add it with: {explanation.command}")
    return 0 if explanation.found else 1
