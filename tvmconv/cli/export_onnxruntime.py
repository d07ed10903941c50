"""`tvmconv export-onnxruntime`: a model's convolutions, or a bundle, as an execution provider for onnxruntime."""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError, TvmconvError, TvmconvWarning
from ..runtime.bundle import MANIFEST
from .output import progress_bar
from .parsing import add_command, add_math, add_records, positive
from .sources import add_sources, by_name, problems_of, read_inputs, read_models

if TYPE_CHECKING:
    from .parsing import Subparsers

# How data lie in what a provider claims.
_DATA_FORMATS = {"convolutions": "NCX", "groups": "NXC"}
EXAMPLE = """\
  tvmconv export-onnxruntime resnet50.onnx --output provider.so
  tvmconv export-onnxruntime detector.onnx --shape images=1x3x320x320 --target x86-64-v3 --target x86-64-v4 --output detector.so
  tvmconv export-onnxruntime detector.bundle --output detector.so
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers,
        "export-onnxruntime",
        "Write kernels for the convolutions of ONNX models as a library that onnxruntime (1.23 or later) loads and runs them by: "
        "onnxruntime.register_execution_provider_library(NAME, 'provider.so'). Each model is timed without it, with its "
        "convolutions claimed alone, and with what is between them; the library claims what was the fastest. Of one SOURCE that is a bundle, its kernels are taken, untimed.",
        EXAMPLE,
        run,
    )
    add_sources(parser)
    parser.add_argument("-o", "--output", required=True, metavar="FILE.so", help="the library to write")
    parser.add_argument(
        "--target",
        action="append",
        metavar="TARGET",
        help="host (default), or an LLVM CPU name such as x86-64-v3, x86-64-v4 or znver4; of a bundle, by default all of its own;"
        " may be given several times",
    )
    add_math(parser)
    add_records(parser)
    parser.add_argument("--jobs", type=positive, metavar="N", help="compile with N processes (default: one a core)")


def run(arguments: argparse.Namespace) -> int:
    """Build, export; print the library's path."""
    from ..exporting.provider_library import export_provider

    bundles = [each for each in arguments.sources if (Path(each) / MANIFEST).is_file()]
    if bundles:
        if len(arguments.sources) > 1:
            raise InputError(f"{bundles[0]} is a bundle; give it alone, or models alone")
        print(export_provider(bundles[0], arguments.output, targets=arguments.target))
        return 0
    from ..building.builder import build

    models = read_models(arguments)
    problems = problems_of(models)
    with_last = [each.with_(data_format="NXC") for each in problems if each.data_format == "NCX"]
    with tempfile.TemporaryDirectory() as folder, progress_bar("compiling") as progress:
        bundle = build(
            [*problems, *with_last],
            Path(folder) / "provider.bundle",
            arguments.target or ["host"],
            math=arguments.math,
            jobs=arguments.jobs,
            records=arguments.records,
            progress=progress,
        )
        library = export_provider(bundle, Path(folder) / "raced.so")
        decisions = _decide([each.source for each in models], library, arguments)
        taken = {_DATA_FORMATS[each] for each in decisions.values() if each != "nothing"} or None
        print(export_provider(bundle, arguments.output, decisions=decisions, data_formats=taken))
    return 0


def _decide(models: list[str], library: Path, arguments: argparse.Namespace) -> dict[int, str]:
    """Say how fast each model is by what a provider claims of it; return what it is to claim, by the hashes of graphs."""
    from ..frontends.shapes import make_buckets
    from ..onnxruntime.racing import LEAST_GAIN, race

    inputs = read_inputs(arguments.inputs)
    decisions: dict[int, str] = {}
    for model in models:
        for each in make_buckets(by_name(arguments.shape), by_name(arguments.dim), arguments.batch):
            shapes, dims = each.shapes or None, each.dims or None
            try:
                found = race(model, library, shapes=shapes, dims=dims, batch=each.batch, inputs=inputs)
            except TvmconvError as error:  # another machine's kernels, or inputs that the model does not run on
                print(f"{model}: not timed: {error}", file=sys.stderr)
                continue
            decisions |= dict.fromkeys(found.graphs, found.fastest)
            times = ", ".join(f"{claims} claimed {1e3 * seconds:.3f} ms" for claims, seconds in found.seconds.items())
            print(f"{model}: {times}", file=sys.stderr)
            if found.fastest == "nothing":
                warnings.warn(
                    f"{model} is not made {LEAST_GAIN} times as fast on this machine, so the provider leaves all of it to onnxruntime; a"
                    " session option changes that: tvmconv.onnxruntime.session(..., claims='groups')",
                    TvmconvWarning,
                    stacklevel=2,
                )
    return decisions
