"""`tvmconv build`: compile, check and bundle a kernel for every problem of the sources."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import BuildError, InvalidProblemError
from ..problem import Problem
from ..runtime.bundle import MANIFEST
from .output import growth, progress_bar
from .parsing import add_budget, add_command, add_math, add_no_cache, add_records, positive
from .sources import add_sources, families_of, network_of, problems_of, read_models, split_families
from .tune import peak_of, progress_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..family import ProblemFamily
    from ..frontends import Model
    from .parsing import Subparsers

EXAMPLE = """\
  tvmconv build resnet50.onnx --output resnet50.bundle
  tvmconv build detector.onnx --shape images=1x3x320x320 --shape images=1x3x640x640 --output detector.bundle
  tvmconv build detector.onnx --shape images=1x3x320x320 --with-filters --output detector.bundle
  tvmconv build recogniser.onnx --shape x=1x3x48x? --output recogniser.bundle
  tvmconv build resnet50.onnx --batch 1 --any-size --output resnet50.bundle
  tvmconv build resnet50.onnx --batch 8 --dtype bf16 --target x86-64-v3 --target x86-64-v4 --output resnet50.bundle
  tvmconv build resnet50.onnx --batch 1 --batch 8 --output resnet50.bundle
  tvmconv build resnet50.onnx --target cuda:sm_80,sm_90 --target x86-64-v3 --output resnet50.bundle
  tvmconv build conv2d-n1-i64x56x56-o64x56x56-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32 --trials 64 --output one.bundle
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers,
        "build",
        "Compile a kernel for every convolution of the sources, check it, and write a bundle. "
        "An existing bundle keeps its other kernels. If the best kernel does not compile or is wrong, the next is "
        "used, with a warning. Exits with 1 if a problem gets none.",
        EXAMPLE,
        run,
    )
    add_sources(parser, free=True)
    parser.add_argument(
        "--any-size",
        action="store_true",
        help="build one kernel per convolution for any batch, spatial extents and padding, instead of one per size",
    )
    parser.add_argument("-o", "--output", required=True, metavar="BUNDLE", help="the bundle's folder")
    parser.add_argument(
        "--target",
        action="append",
        metavar="TARGET",
        help="host (default), an LLVM CPU name such as x86-64-v3, x86-64-v4 or znver4, or GPU architectures such as "
        "cuda:sm_90, cuda:sm_80,sm_90 or cuda:sm_90a; may be given several times",
    )
    add_budget(parser)
    add_no_cache(parser)
    add_math(parser)
    add_records(parser)
    parser.add_argument(
        "--transfer",
        action="store_true",
        help="use the schedule of the nearest tuned problem for problems without a record; the bundle names it",
    )
    parser.add_argument(
        "--with-filters",
        action="store_true",
        help="store the models' packed filters, biases and epilogue operands in the bundle, with following "
        "normalizations folded in: load(BUNDLE).node(NAME)(data)",
    )
    parser.add_argument(
        "--no-fallback",
        dest="fallback",
        action="store_false",
        help="fail and write nothing if the first kernel for a problem does not compile or is wrong, instead "
        "of trying the next",
    )
    parser.add_argument("--jobs", type=positive, metavar="N", help="compile with N processes (default: one per core)")


def run(arguments: argparse.Namespace) -> int:
    """Build; print the bundle's path."""
    from ..building.builder import build

    families, models, arguments.sources = split_families(arguments, arguments.with_filters)
    if families or models or arguments.any_size:
        for option in ("trials", "seconds"):
            if getattr(arguments, option):
                raise InvalidProblemError(
                    f"--{option} applies to fixed sizes only, and some sources have free extents; build them separately"
                )
    if arguments.sources:
        models += read_models(arguments, constants=arguments.with_filters)
    if arguments.any_size:
        from ..frontends.families import free

        models = [replace(each, nodes=tuple(map(free, each.nodes))) for each in models]
    problems: list[Problem | ProblemFamily] = [*problems_of(models), *families, *families_of(models)]
    targets = arguments.target or ["host"]
    if arguments.trials or arguments.seconds:
        _tune(models, targets, arguments)
    failed: BuildError | None = None
    with progress_bar("compiling") as progress:
        try:
            path = build(
                problems,
                arguments.output,
                targets,
                math=arguments.math,
                jobs=arguments.jobs,
                records=arguments.records,
                transfer=arguments.transfer,
                fallback=arguments.fallback,
                progress=progress,
            )
        except BuildError as error:
            path, failed = Path(arguments.output), error
            if not arguments.fallback or not (path / MANIFEST).is_file():
                raise  # nothing was written
    if arguments.with_filters:
        _add_filters(path, [model for model in models if model.is_model], len(targets))
    if failed:
        raise failed
    print(path)
    return 0


def _add_filters(bundle: Path, models: Sequence[Model], targets: int) -> None:
    """Write the models' filters into a bundle, and print their size."""
    from ..building.filters import add_filters
    from ..runtime.bundle import read_bundle

    size = add_filters(bundle, models)
    before = sum(node.problem.filter_bytes for each in models for node in each.nodes)
    is_transformed = any(each.numerical_class == "transform" for each in read_bundle(bundle).all_entries)
    grown = growth(size, before * targets, "--math strict") if is_transformed else ""
    print(f"the filters of its nodes take {size / 2**20:.1f} MiB{grown}", file=sys.stderr)


def _tune(models: list[Model], targets: list[str], arguments: argparse.Namespace) -> None:
    from ..building.builder import parse_targets, tune_for
    from ..tuning.records import Records

    parsed = parse_targets(targets)
    with progress_line(peak_of(targets)) as progress:
        records = Records(arguments.records)
        budget = arguments.trials, arguments.seconds
        tune_for(parsed, problems_of(models), *budget, records, arguments.math, progress, network_of(models))
