"""`tvmconv export-onnxruntime`: a model's convolutions, or a bundle, as an execution provider for onnxruntime."""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError, SourceError, TvmconvError, TvmconvWarning
from ..exporting.provider_sources import CLAIMS, NETWORK
from ..runtime.bundle import MANIFEST
from .networks.provider import from_to, networks_of, with_shapes
from .networks.sources import given_free
from .output import check_output, progress_bar
from .parsing import add_command, add_math, add_no_cache, add_records, positive
from .sources import add_sources, problems_of, read_inputs, read_models

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..exporting.network_part import NetworkPart
    from ..onnxruntime.racing import RaceResult
    from ..problem import Problem
    from ..support.progress import Progress
    from .parsing import Subparsers

_UNCHECKED = "numbers decide the shapes of all outputs, or the outputs were empty"
EXAMPLE = """\
  tvmconv export-onnxruntime resnet50.onnx --output provider.so
  tvmconv export-onnxruntime detector.onnx --shape images=1x3x320x320 --target x86-64-v3 --target x86-64-v4 --output detector.so
  tvmconv export-onnxruntime detector.onnx --shape images=?x3x?x? --output detector.so
  tvmconv export-onnxruntime detector.bundle --output detector.so
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers,
        "export-onnxruntime",
        "Write an execution provider for onnxruntime (1.23 or later) with networks or kernels for ONNX models: load it by "
        "onnxruntime.register_execution_provider_library(NAME, os.path.abspath('provider.so')). Each model is timed without it, "
        "with its convolutions claimed, and as one network; the library claims the fastest of these. If SOURCE is a bundle, its "
        "kernels are used, without timing.",
        EXAMPLE,
        run,
    )
    add_sources(parser, free=True)
    parser.add_argument("-o", "--output", required=True, metavar="FILE.so", help="the library to write")
    parser.add_argument(
        "--target",
        action="append",
        metavar="TARGET",
        help="host (default), or an LLVM CPU name such as x86-64-v3, x86-64-v4 or znver4; for a bundle, all of"
        " its targets by default; may be given several times",
    )
    add_no_cache(parser)
    add_math(parser)
    add_records(parser)
    parser.add_argument("--jobs", type=positive, metavar="N", help="compile with N processes (default: one per core)")


def run(arguments: argparse.Namespace) -> int:
    """Build, export; print the library's path."""
    check_output(Path(arguments.output), *arguments.sources, mapped=True)
    bundles = [each for each in arguments.sources if (Path(each) / MANIFEST).is_file()]
    if bundles:
        _export_bundle(bundles[0], arguments)
    else:
        _export_models(arguments)
    return 0


def _export_bundle(bundle: str, arguments: argparse.Namespace) -> None:
    from ..exporting.provider_library import export_provider

    if len(arguments.sources) > 1:
        raise InputError(f"{bundle} is a bundle; give either one bundle or only models")
    print(f"{bundle}: no network: a bundle has convolutions alone; give the ONNX models for more", file=sys.stderr)
    print(export_provider(bundle, arguments.output, targets=arguments.target))


def _export_models(arguments: argparse.Namespace) -> None:
    """Build the models' kernels and networks, race them, and export the fastest of each."""
    from ..building.fallbacks import fork_ahead
    from ..exporting.provider_library import export_provider, prepare_provider
    from ..network.compile import prepare
    from ..network.options import check_target

    fork_ahead(builds=2)  # of the convolutions, and of a network
    if not arguments.target:
        prepare("host")
        prepare_provider(check_target("host").isa)
    free = given_free(arguments)
    # With free extents, only networks are exported.
    models = [] if free else read_models(arguments, required=False)
    sources = arguments.sources if free else [each.source for each in models if each.is_model]
    problems = problems_of(models)
    with tempfile.TemporaryDirectory() as temporary, progress_bar("compiling") as progress:
        folder = Path(temporary)
        bundle = _bundle(problems, folder, arguments, progress) if problems else None
        networks = networks_of(sources, arguments, folder, progress)
        if bundle is None and not networks:
            raise SourceError(
                f"nothing to export from {', '.join(arguments.sources)}: {'' if free else 'no convolution and '}no network can be compiled"
            )
        library = export_provider(bundle, folder / "raced.so", networks=networks)
        claims = CLAIMS if bundle else ("nothing", NETWORK)
        races, slower = _races(sources, library, claims, networks, arguments)
        # A graph without convolutions has the hash 0.
        decisions = {graph: each.fastest_without_network for each in races for graph, _ in each.graphs if graph}
        slower |= {identity for each in races if each.fastest != NETWORK for _, identity in each.graphs}
        print(
            export_provider(
                bundle,
                arguments.output,
                decisions=decisions,
                networks={graph: found for graph, found in networks.items() if graph not in slower},
            )
        )


def _bundle(problems: Sequence[Problem], folder: Path, arguments: argparse.Namespace, progress: Progress) -> Path:
    from ..building.builder import build

    return build(
        problems,
        folder / "provider.bundle",
        arguments.target or ["host"],
        math=arguments.math,
        jobs=arguments.jobs,
        records=arguments.records,
        progress=progress,
    )


def _races(
    models: Sequence[str],
    library: Path,
    claims: Sequence[str],
    networks: Mapping[int, Sequence[NetworkPart]],
    arguments: argparse.Namespace,
) -> tuple[list[RaceResult], set[int]]:
    """Print each model's time by what the provider claims of it; return the races, and the identities of networks to leave out."""
    from ..onnxruntime.racing import LEAST_GAIN, race, race_parts

    inputs = read_inputs(arguments.inputs)
    races: list[RaceResult] = []
    useless: set[int] = set()
    for shaped in with_shapes(models, arguments):
        model, name = shaped.model, shaped.name
        try:
            given = {"inputs": inputs, "claims": claims, "sizes": shaped.sizes, **shaped.of_session}
            found, alone = race_parts(model, library, race(model, library, **given), **given)
        except TvmconvError as error:  # another machine's kernels, or inputs that the model does not run on
            print(f"{name}: not timed, so everything in the library is claimed: {error}", file=sys.stderr)
            continue
        races.append(found)
        left_out = alone.keys() - {identity for _, identity in found.graphs}
        useless |= left_out
        for identity, each in alone.items():
            ends = ([end["name"] for end in networks[identity][0].description[kind]] for kind in ("inputs", "outputs"))
            why = f"; no network: {each.refused}" if each.refused else ""
            print(f"{name}: the network {from_to(*ends)} alone: {_times(each)}{why}", file=sys.stderr)
        if left_out:
            print(
                f"{name}: networks that make it slower, or answer wrong, are left out, {len(left_out)} of {len(alone)}",
                file=sys.stderr,
            )
        print(f"{name}: {_times(found)}", file=sys.stderr)
        if found.refused:
            print(f"{name}: no network: {found.refused}", file=sys.stderr)
        if found.unchecked:
            print(f"{name}: its network's answers were not compared with onnxruntime's: {_UNCHECKED}", file=sys.stderr)
        if found.fastest == "nothing":
            more = "; a session option changes that: tvmconv.onnxruntime.session(..., claims='convolutions')"
            warnings.warn(
                f"{name} is not at least {LEAST_GAIN} times as fast on this machine, so the provider leaves it to onnxruntime"
                + (more if "convolutions" in claims else ""),
                TvmconvWarning,
                stacklevel=2,
            )
    return races, useless


def _times(found: RaceResult) -> str:
    return ", ".join(f"{claims} claimed {1e3 * seconds:.3f} ms" for claims, seconds in found.seconds.items())
