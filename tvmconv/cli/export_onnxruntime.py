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
    from ..exporting.network_part import NetworkPart
    from ..onnxruntime.racing import Race
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
        "convolutions claimed alone, with what is between them, and as one network; the library claims what was the fastest. Of one SOURCE that is a bundle, its kernels are taken, untimed.",
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
    from ..exporting.provider_sources import NETWORK

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
        network = _network(arguments)
        library = export_provider(bundle, Path(folder) / "raced.so", network=network)
        races = _races([each.source for each in models], library, arguments)
        parts = {graph: each.fastest_part for each in races for graph, _ in each.graphs}
        graph = next((each.graphs[0][1] for each in races if each.fastest == NETWORK), None)
        print(
            export_provider(
                bundle,
                arguments.output,
                decisions=parts,
                data_formats={_DATA_FORMATS[each] for each in parts.values() if each != "nothing"} or None,
                network=network if graph else None,
                graph=graph,
            )
        )
    return 0


def _network(arguments: argparse.Namespace) -> NetworkPart | None:
    """Return the network of the model, if there is one model, at one shape, for this machine's CPU; say why there is none."""
    from ..frontends.shapes import make_buckets
    from ..relax.compiling import export_part
    from ..relax.onnx import read_onnx
    from ..relax.rewriting import use_kernels
    from ..tuning.records import records_of

    buckets = make_buckets(by_name(arguments.shape), by_name(arguments.dim), arguments.batch)
    targets = arguments.target or ["host"]
    if len(arguments.sources) > 1 or len(buckets) > 1 or len(targets) > 1:
        print("no network: a library has one of one model, shape and target; it has parts of all", file=sys.stderr)
        return None
    try:
        module = read_onnx(arguments.sources[0], buckets[0])
        module = use_kernels(module, targets[0], records_of(arguments.records), math=arguments.math)
        return export_part(module, targets[0])
    except TvmconvError as error:
        print(f"{arguments.sources[0]}: no network: {error}", file=sys.stderr)
        return None


def _races(models: list[str], library: Path, arguments: argparse.Namespace) -> list[Race]:
    """Say how fast each model is by what a provider claims of it."""
    from ..frontends.shapes import make_buckets
    from ..onnxruntime.racing import LEAST_GAIN, race

    inputs = read_inputs(arguments.inputs)
    races: list[Race] = []
    for model in models:
        for each in make_buckets(by_name(arguments.shape), by_name(arguments.dim), arguments.batch):
            shapes, dims = each.shapes or None, each.dims or None
            try:
                found = race(model, library, shapes=shapes, dims=dims, batch=each.batch, inputs=inputs)
            except TvmconvError as error:  # another machine's kernels, or inputs that the model does not run on
                print(f"{model}: not timed: {error}", file=sys.stderr)
                continue
            races.append(found)
            times = ", ".join(f"{claims} claimed {1e3 * seconds:.3f} ms" for claims, seconds in found.seconds.items())
            print(f"{model}: {times}", file=sys.stderr)
            if found.refused:
                print(f"{model}: no network: {found.refused}", file=sys.stderr)
            if found.fastest == "nothing":
                warnings.warn(
                    f"{model} is not made {LEAST_GAIN} times as fast on this machine, so the provider leaves all of it to onnxruntime; a"
                    " session option changes that: tvmconv.onnxruntime.session(..., claims='groups')",
                    TvmconvWarning,
                    stacklevel=2,
                )
    return races
