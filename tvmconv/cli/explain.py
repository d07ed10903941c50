"""`tvmconv explain`: why a kernel is found or not."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import TvmconvError
from ..family_text import is_family, parse_family
from ..signature import join
from .output import VERIFIED, print_json, print_table
from .parsing import add_command, add_json, add_math, add_records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..building.decision.weigh import Weighed
    from ..targets.target import Target
    from .parsing import Subparsers

_SIGNATURE = "conv2d-n1-i64x56x56-o64x56x56-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32"
EXAMPLE = f"""\
  tvmconv explain {_SIGNATURE} resnet50.bundle
  tvmconv explain {_SIGNATURE} resnet50.bundle --split-batch
  tvmconv explain {_SIGNATURE} --algorithms --target x86-64-v3
  tvmconv explain conv2d-n?-i64x?x?-o64x?x?-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32 --algorithms
  tvmconv explain resnet50.so
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers,
        "explain",
        "Explain which kernel of the bundles serves a signature, or what is nearest and how to add it; exits with 1 "
        "if none serves it. With --split-batch, kernels for other batches count too. With --algorithms: which algorithm "
        "`tvmconv build` chooses, the estimated cost of each, and why others are unsuitable. For a network's library: its kernels, "
        "and which filters were joined.",
        EXAMPLE,
        run,
    )
    parser.add_argument(
        "signature", metavar="SIGNATURE|NETWORK.so", help="see: tvmconv sig --help; or a library from tvmconv compile"
    )
    parser.add_argument(
        "bundles", nargs="*", default=[], metavar="BUNDLE", help="the folders of one or several bundles"
    )
    parser.add_argument("--split-batch", action="store_true", help="as load(split_batch=True) does")
    parser.add_argument("--algorithms", action="store_true", help="compare the algorithms; takes no bundle")
    parser.add_argument("--target", metavar="TARGET", help="with --algorithms: as for tvmconv build (default: host)")
    add_math(parser)
    add_records(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the explanation."""
    alone = arguments.target is None and arguments.records is None and arguments.math == "default"
    if arguments.signature.endswith(".so") or Path(arguments.signature).is_file():
        if arguments.bundles or arguments.algorithms or arguments.split_batch or not alone:
            raise TvmconvError(f"{arguments.signature} is a file; a network's library is explained without any option")
        return _network(Path(arguments.signature), arguments.json)
    if arguments.algorithms and arguments.split_batch:
        raise TvmconvError("--algorithms takes no bundle, and --split-batch needs one; leave one of them out")
    if arguments.algorithms and arguments.bundles:
        raise TvmconvError(
            f"--algorithms takes no bundle, and {arguments.bundles[0]!r} is given; leave one of them out"
        )
    if not arguments.algorithms and not (arguments.bundles and alone):
        raise TvmconvError(
            "give the folder of a bundle to explain its kernels; or --algorithms (with --target, --math, --records) and no bundle"
        )
    if is_family(arguments.signature):
        return _blocks(arguments) if arguments.algorithms else _families(arguments)
    return _algorithms(arguments) if arguments.algorithms else _kernels(arguments)


def _families(arguments: argparse.Namespace) -> int:
    """Print the families of bundles; return 0 if the one that is asked for is among them."""
    from ..runtime.bundle import read_bundle

    family = parse_family(arguments.signature)
    found = [(str(path), each) for path in arguments.bundles for each in read_bundle(path).families]
    if arguments.json:
        print_json([{"bundle": path, **asdict(each)} for path, each in found])
    else:
        rows = [(path, e.signature, e.target, e.algorithm, VERIFIED[e.verified]) for path, e in found]
        print_table(("bundle", "family", "target", "algorithm", "verified"), rows)
    return 0 if any(parse_family(each.signature) == family for _, each in found) else 1


def _blocks(arguments: argparse.Namespace) -> int:
    """Print the blocks that would compute any size of a family."""
    from ..building.builder import parse_targets
    from ..building.decision.rank_families import rank_family
    from ..lowering.cpu.family import blocks_of
    from ..targets.target import CpuTarget

    family = parse_family(arguments.signature)
    (target,) = parse_targets([arguments.target or "host"])
    if not isinstance(target, CpuTarget):
        raise TvmconvError(
            f"{target.name} is a GPU, and free extents are supported on CPUs only; give a CPU as --target, or fixed sizes"
        )
    algorithm, chosen = next(iter(rank_family(family, target, arguments.math, joined=True).items()))
    blocks = blocks_of(family, target, chosen)
    if arguments.json:
        print_json(
            {
                "algorithm": algorithm,
                "blocks": [[each.algorithm, each.problem.out_spatial, each.cost.cycles] for each in blocks],
            }
        )
        return 0
    table = [
        (
            each.algorithm,
            join(each.problem.out_spatial),
            f"{each.cost.cycles:.0f}",
            f"{each.cost.cycles / prod(each.problem.out_spatial):.1f}",
            ", ".join(sorted(each.images)) or "-",
        )
        for each in blocks
    ]
    print(
        f"{algorithm}, in blocks that cover an output of any size; at edges and in smaller images, data are copied or taps left out"
    )
    print_table(("algorithm", "outputs", "cycles", "cycles an output", "in place"), table)
    return 0


def _algorithms(arguments: argparse.Namespace) -> int:
    from ..building.builder import parse_targets
    from ..building.decision.weigh import weigh
    from ..signature import parse_signature
    from ..tuning.records import records_of

    (target,) = parse_targets([arguments.target or "host"])
    rows = weigh(parse_signature(arguments.signature), target, arguments.math, records_of(arguments.records))
    threads = _threads(arguments.signature, target, rows)
    if arguments.json:
        print_json({"target": target.name, "algorithms": [asdict(row) for row in rows], "threads": threads})
        return 0
    table = [
        (
            row.algorithm,
            row.numerical_class,
            "-" if row.cycles is None else f"{row.cycles:.0f}",
            "taken" if row.taken else "possible" if row.covers else "no",
            row.reason or "-",
        )
        for row in rows
    ]
    print_table(("algorithm", "class", "cycles", "verdict", "reason"), table)
    if threads is not None:
        print(f"with its default schedule, and by its number of tasks alone, it gains from up to {threads} threads")
    terms = [
        (row.algorithm, event, f"{count:.0f}", f"{cycles / count:.3g}", f"{cycles:.0f}")
        for row in rows
        for event, (count, cycles) in row.terms.items()
    ]
    if terms:
        print(f"\nThe costs are sums of counted events (docs/cost-model.md), with coefficients {target.cost_source}:")
        print_table(("algorithm", "event", "count", "cycles each", "cycles"), terms)
    return 0


def _threads(signature: str, target: Target, rows: Sequence[Weighed]) -> int | None:
    """Return the largest number of threads from which the chosen algorithm gains; None on a GPU."""
    from ..lowering.compiler import Choice
    from ..lowering.cpu.sharing import find_tasks, most_useful
    from ..signature import parse_signature
    from ..targets.target import CpuTarget

    taken = next((row.algorithm for row in rows if row.taken), None)
    if taken is None or not isinstance(target, CpuTarget):
        return None
    return most_useful(find_tasks(parse_signature(signature), target, Choice(taken)))


def _network(path: Path, as_json: bool) -> int:
    from ..runtime.networks.file import library_path, read_file
    from ..runtime.networks.sizes import SIZES

    told = read_file(library_path(path)).description
    found = [row for each in (told, *told.get(SIZES, ())) for row in each["report"]]
    joined = told.get("rewrites", [])  # absent from older networks
    if as_json:
        print_json({"convolutions": found, "joined": joined})
        return 0
    rows = [(row["name"], row["signature"] or "-", row["algorithm"] or "TVM's", row["why"] or "-") for row in found]
    print_table(("convolution", "signature", "algorithm", "why not ours"), rows)
    for line in joined:
        print(f"joined: {line}")
    return 0


def _kernels(arguments: argparse.Namespace) -> int:
    from ..runtime.explained import explain

    explanation = explain(arguments.signature, *arguments.bundles, split_batch=arguments.split_batch)
    if arguments.json:
        print_json({**asdict(explanation), "found": explanation.found})
        return 0 if explanation.found else 1
    if explanation.variants:
        rows = [
            (
                v.bundle,
                v.target,
                v.algorithm,
                v.origin,
                VERIFIED[v.verified],
                "taken" if v.taken else "rejected",
                v.reason,
            )
            for v in explanation.variants
        ]
        print_table(("bundle", "target", "algorithm", "origin", "verified", "verdict", "reason"), rows)
        for variant in explanation.variants:
            if variant.transferred_from:
                print(f"the schedule for {variant.target} was tuned for {variant.transferred_from}")
            for skipped in variant.skipped:
                print(f"for {variant.target}, {skipped['algorithm']} was skipped: {skipped['reason']}")
    elif explanation.family is not None:
        print(f"the kernel of the family {explanation.family} serves it")
    else:
        print(f"there is no kernel for {explanation.signature}")
    for reason in explanation.families:
        print(reason)
    for split in explanation.splits:
        if split.obstacle is not None:
            print(f"on {split.device}, {split.obstacle}")
            continue
        unless = "" if arguments.split_batch else ", if it is loaded with split_batch=True"
        print(f"{split.device} serves it by calls for batch {split}{unless}")
        calls = [(str(part.batch), str(part.calls), part.signature) for part in split.parts]
        print_table(("batch", "calls", "signature"), calls)
    if explanation.nearest is not None:
        print(f"the nearest is {explanation.nearest}")
        print_table(
            ("field", "asked", "nearest"), [(d.field, str(d.asked), str(d.nearest)) for d in explanation.differences]
        )
    if explanation.command is not None:
        print(f"add it with: {explanation.command}")
    return 0 if explanation.found else 1
