"""`tvmconv list`: a bundle's kernels, or a model's convolutions."""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .output import VERIFIED, print_json, print_table
from .parsing import add_command, add_json
from .sources import add_source_options, read_models

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..frontends import Model
    from ..problem import Problem
    from .parsing import Subparsers

EXAMPLE = """\
  tvmconv list resnet50.bundle
  tvmconv list resnet50.bundle --json
  tvmconv list detector.onnx --shape images=1x3x320x320
  tvmconv list detector.onnx --shape images=1x3x320x320 --no-fuse
  tvmconv list detector.onnx --shape images=1x3x320x320 detector.bundle
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    summary = "List the kernels of a bundle, or the convolutions of a model and which of them a bundle has."
    parser = add_command(subparsers, "list", summary, EXAMPLE, run)
    parser.add_argument(
        "what", metavar="BUNDLE|SOURCE", help="a bundle's folder, a model, a file of problems, or a signature"
    )
    parser.add_argument("bundle", nargs="?", metavar="BUNDLE", help="the bundle to look up the convolutions in")
    add_source_options(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print a line for each kernel of a bundle, or each distinct convolution of a model."""
    from ..frontends import FILES

    is_signature = re.match(r"(conv|backprop)\dd-", arguments.what)
    is_source = (is_signature or Path(arguments.what).suffix.lower() in FILES) and not Path(arguments.what).is_dir()
    return _list_model(arguments) if is_source or arguments.bundle else _list_bundle(arguments)


def _list_bundle(arguments: argparse.Namespace) -> int:
    from ..runtime.bundle import read_bundle
    from ..runtime.selection import obstacle

    bundle = read_bundle(arguments.what)
    obstacles = {name: obstacle(target) for name, target in bundle.targets.items()}
    if arguments.json:
        print_json([{**asdict(entry), "obstacle": obstacles[entry.target]} for entry in bundle.all_entries])
        return 0
    rows = [
        (
            entry.signature,
            entry.target,
            "no" if obstacles[entry.target] else "yes",
            entry.algorithm,
            entry.origin,
            f"{entry.measured['seconds'] * 1e6:.1f}" if entry.measured else "-",
            VERIFIED[entry.verified],
            f"{entry.error['measure']} {entry.error['value']:g}" if entry.error else "-",
            ", ".join(each["algorithm"] for each in entry.skipped) or "-",
        )
        for entry in bundle.all_entries
    ]
    header = ("signature", "target", "runs here", "algorithm", "origin", "measured us", "verified", "error", "skipped")
    print_table(header, rows)
    for name, why in obstacles.items():
        if why:
            print(f"{name}: {why}", file=sys.stderr)
    if any(entry.skipped for entry in bundle.all_entries):
        print("why algorithms were skipped: tvmconv explain SIGNATURE BUNDLE", file=sys.stderr)
    if any(entry.verified is None and obstacles[entry.target] is None for entry in bundle.all_entries):
        print("to check those that never were: tvmconv verify BUNDLE", file=sys.stderr)
    return 0


def _list_model(arguments: argparse.Namespace) -> int:
    (model,) = read_models(arguments, [arguments.what])
    rows = _convolutions(model, arguments.bundle)
    if arguments.json:
        print_json({"convolutions": rows, "skipped": [asdict(each) for each in model.skipped]})
        return 0
    header = ["node", "signature", "times", "% of operations", *(["in the bundle"] if arguments.bundle else [])]
    table = [
        [
            _convolution_cell(row["serves"][row["nodes"][0]]),
            row["signature"],
            str(len(row["nodes"])),
            f"{100 * row['share']:.1f}",
            *([", ".join(row["targets"]) or "no"] if arguments.bundle else []),
        ]
        for row in rows
    ]
    print_table(header, table)
    return 0


def _convolution_cell(serves: Sequence[str]) -> str:
    """Return the convolution's name, and how many nodes after it a kernel computes."""
    return serves[0] + (f" + {len(serves) - 1}" if serves[1:] else "")


def _convolutions(model: Model, path: str | None) -> list[dict[str, Any]]:
    """Return a model's distinct convolutions: their places, their shares of the operations, and a bundle's kernels for them."""
    from ..runtime.bundle import read_bundle
    from ..signature import format_signature

    targets: dict[str, list[str]] = {}
    for entry in read_bundle(path).entries if path else ():
        targets.setdefault(entry.signature, []).append(entry.target)
    serves: dict[Problem, dict[str, list[str]]] = {}
    for node in model.nodes:
        serves.setdefault(node.problem, {})[node.name] = list(node.serves)
    uses = model.uses()
    total = sum(use.problem.flops * len(use.places) for use in uses)
    rows = []
    for use in uses:
        signature = format_signature(use.problem)
        flops = use.problem.flops * len(use.places)
        row = {
            "nodes": list(use.places),
            "serves": serves[use.problem],
            "signature": signature,
            "flops": flops,
            "share": flops / total if total else 0.0,
        }
        rows.append({**row, **({"targets": targets.get(signature, [])} if path else {})})
    return rows
