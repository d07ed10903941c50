"""`tvmconv compile`: a whole network as one library."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Collection, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..checks import FILES, MEMORIES, QUANTIZED_LAYERS
from ..errors import InputError, TvmconvWarning, VerificationError, check_extra
from ..frontends import check_exists
from ..support.timing import stage
from .networks.answers import answer_random, compare_library, compare_module
from .networks.known import KnownLibrary, Told
from .networks.sources import check_source, read_source
from .output import check_output, growth, print_json, progress_bar
from .parsing import add_budget, add_command, add_json, add_math, add_no_cache, add_records, add_timing_table, unsigned
from .sources import parse_dim, parse_free_shape, parse_value, split_shapes

if TYPE_CHECKING:
    from ..exporting.network_part import NetworkPart
    from .networks.sources import Source
    from .parsing import Subparsers

FORMATS = ("plan", "c", "web")
# Default target of a format, where it is not the host.
_TARGETS = {"web": "wasm32"}
# Free extents of the inputs in the test of an exported C library.
_SIZES = (64, 96)
EXAMPLE = """\
  tvmconv compile resnet50.onnx --output resnet50.so
  tvmconv compile detector.onnx --shape x=1x3x640x640 --output detector.so
  tvmconv compile detector.onnx --shape x=1x3x?x? --output detector.so
  tvmconv compile detector.onnx --shape x=1x3x?x? --shape x=1x3x640x640 --output detector.so
  tvmconv compile resnet50.pt2 --output resnet50.so
  tvmconv compile resnet50.xml --output resnet50.so
  tvmconv compile detector.onnx --cut boxes --cut scores --output detector.so
  tvmconv compile resnet50.onnx --batch 8 --target x86-64-v3 --output resnet50.so
  tvmconv compile resnet50.onnx --format c --target neoverse-n1 --output resnet50
  tvmconv compile resnet50.onnx --format web --output resnet50
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers,
        "compile",
        "Compile a whole model into one library: its convolutions run as the kernels of tvmconv build, other operators as fused"
        " functions.",
        EXAMPLE,
        run,
    )
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="an ONNX file (.onnx), OpenVINO IR (.xml), or a program saved by torch.export.save (.pt2)",
    )
    parser.add_argument(
        "-o",
        "--output",
        required=True,
        metavar="LIBRARY.so",
        help="the library, or with --format c or web the folder to write; an existing one is replaced",
    )
    parser.add_argument(
        "--target",
        default="host",
        metavar="TARGET",
        help="host (default; with --format web: wasm32), or an LLVM CPU name such as x86-64-v3",
    )
    _add_inputs(parser)
    _add_numbers(parser)
    _add_output(parser)
    parser.add_argument(
        "--quantized",
        choices=QUANTIZED_LAYERS,
        default=QUANTIZED_LAYERS[0],
        help="fastest: compute layers of a quantised model in f32 where that is estimated to be faster, and "
        "name them (default: %(default)s, in integers)",
    )
    parser.add_argument(
        "--require-comparison",
        action="store_true",
        help="fail (exit code 1) if the outputs cannot be compared with those of onnxruntime, ONNX's reference"
        " evaluator, OpenVINO or PyTorch; with --format c: if the test has nothing to compare with",
    )
    add_budget(parser)
    add_no_cache(parser)
    add_timing_table(parser)
    add_math(parser)
    add_records(parser)
    add_json(parser)


def _add_inputs(parser: argparse.ArgumentParser) -> None:
    """Add the options that complete the model's inputs, or replace its outputs."""
    parser.add_argument(
        "--shape",
        action="append",
        type=parse_free_shape,
        default=[],
        metavar="NAME=1x3x640x640",
        help="the shape of an input; a single input needs no NAME=. 1x3x?x?: any height and width, chosen by "
        "each call; ?%%32 is a multiple of 32, ?[32:4096] a range, h an extent that is the same wherever "
        "it appears. Fixed sizes given beside such a shape get their own kernels",
    )
    parser.add_argument(
        "--dim", action="append", type=parse_dim, default=[], metavar="NAME=N", help="the size of a named dimension"
    )
    parser.add_argument("--batch", type=unsigned, metavar="N", help="the size of a free batch dimension")
    parser.add_argument(
        "--value",
        action="append",
        type=parse_value,
        default=[],
        metavar="NAME=NUMBER",
        help="make an input a constant, such as a sampling rate; may be given several times",
    )
    parser.add_argument(
        "--cut",
        action="append",
        default=[],
        metavar="TENSOR",
        help="use this tensor as output instead of the model's, such as an input of NonMaxSuppression; may be "
        "given several times",
    )


def _add_numbers(parser: argparse.ArgumentParser) -> None:
    """Add the options for types and layouts."""
    parser.add_argument(
        "--dtype",
        choices=("f32", "f16", "bf16"),
        help="compute in this type, also for inputs and outputs; not for quantised models (default: the model's)",
    )
    parser.add_argument(
        "--layout",
        choices=("NXC", "NCX"),
        help="layout of data between operators: NXC (default), channels last, or NCX, the model's",
    )


def _add_output(parser: argparse.ArgumentParser) -> None:
    """Add the options for the library's format and size."""
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default=FORMATS[0],
        help="plan (default): a library that needs only tvm-ffi; c: a folder with headers, an archive and a "
        "shared library for C and C++, which need only libc; web: a folder with a WebAssembly module and "
        "its JavaScript",
    )
    parser.add_argument(
        "--name", help="with --format c: prefix of the library and its functions (default: the folder's name)"
    )
    parser.add_argument(
        "--memory",
        choices=MEMORIES,
        default="default",
        help="small: no transforms, as with --math strict, and no joined filters larger than those they "
        "replace (default: %(default)s)",
    )
    parser.add_argument(
        "--file",
        choices=FILES,
        default="default",
        help="small: store filters that packing would enlarge in the model's layout; each process packs them "
        "when it loads the library (default: %(default)s)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Compile; print the library's path, or a row for each convolution."""
    if arguments.target == "host":
        arguments.target = _TARGETS.get(arguments.format, arguments.target)
    check_source(arguments)
    output = Path(arguments.output)
    if arguments.format == "plan":
        check_output(output, arguments.model, mapped=True)
    with stage("cache"):
        library = KnownLibrary(arguments)
        told = library.write(output)
    if told is not None:
        _tell(arguments, told)
    else:
        with library.watch_warnings():
            told, lacking = _compile(arguments)
        if lacking and arguments.require_comparison:
            raise VerificationError(f"{lacking}, which --require-comparison demands")
        if lacking:
            warnings.warn(lacking, TvmconvWarning, stacklevel=1)
            return 0
        with stage("cache"):
            library.keep(output, told)
    if arguments.format != "c":
        print("  checked: on random inputs, outputs agree with the model's", file=sys.stderr)
    return 0


def _tell(arguments: argparse.Namespace, told: Told) -> None:
    """Print the summary of a library before its answers are compared."""
    print(f"{arguments.model}: {told.lines[0]}", *told.lines[1:], sep="\n", file=sys.stderr)
    if arguments.json:
        print_json(told.rows)
    else:
        print(arguments.output)


def _compile(arguments: argparse.Namespace) -> tuple[Told, str]:
    """Compile, print the summary and compare; return the summary, and why the outputs were not compared."""
    _check(arguments)
    check_exists(Path(arguments.model))
    with stage("import"):
        from ..building.fallbacks import fork_ahead
        from ..exporting.web_exporter import export_web
        from ..network.compile import export, export_part, export_parts, prepare
        from ..network.ir.extents import has_extents

        fork_ahead(more=1)  # one for the answers of the model's library
    prepare(arguments.target)
    with stage("read"):
        source = read_source(arguments)
    if arguments.format == "web" and has_extents(source.module):
        raise InputError(
            "--format web needs fixed extents: give --shape as numbers, or export the program without dynamic dimensions, or leave"
            " --format web out"
        )
    module, *sizes = _use_kernels(arguments, source)
    lacking, parts = "", {}
    if arguments.format == "c":
        lacking = _export_c(arguments, source, export_part(module, arguments.target))
    elif arguments.format == "web":
        parts = export_parts(module, arguments.target)
        export_web(parts, Path(arguments.model).name, arguments.output)
    else:
        export(module, arguments.output, arguments.target, sizes=sizes)
    told = _summarise(arguments, module, sizes)
    _tell(arguments, told)
    with stage("compare"):
        if arguments.format == "web":
            answers = (
                compare_module(arguments, source, part, threads) for part in parts.values() for threads in (1, 2)
            )
            lacking = "; ".join(filter(None, answers))
        elif arguments.format == "plan":  # a C library is compared by its own test
            lacking = compare_library(arguments, source)
    return told, lacking


def _use_kernels(arguments: argparse.Namespace, source: Source) -> list[Any]:
    """Return the model's module with compiled kernels, and those of its fixed sizes."""
    from ..network.passes import use_kernels
    from ..tuning.records import records_of

    with progress_bar("compiling") as progress:
        return [
            use_kernels(
                each,
                arguments.target,
                records=records_of(arguments.records, written=bool(arguments.trials or arguments.seconds)),
                layout=arguments.layout,
                math=arguments.math,
                progress=progress,
                memory=arguments.memory,
                file=arguments.file,
                trials=arguments.trials,
                seconds=arguments.seconds,
                dtype=arguments.dtype,
                quantized=arguments.quantized,
            )
            for each in (source.module, *source.sizes)
        ]


def _summarise(arguments: argparse.Namespace, module: Any, sizes: Sequence[Any]) -> Told:
    """Return which operations run as kernels, which rewrites apply, and the library's memory."""
    from ..network.report import in_f32, report, rewrites

    rows = [row for each in (module, *sizes) for row in report(each)]
    ours = sum(not row.why for row in rows)
    lines = [f"{ours} of {len(rows)} convolutions and products run as tvmconv kernels"]
    lines += [f"  by TVM: {row.name}: {row.why}" for row in rows if row.why]
    lines += [f"  joined: {line}" for line in rewrites(module)]
    lines += [f"  in f32: {line}" for line in in_f32(module)]
    if arguments.format == "plan":
        lines.append(_footprint(arguments.output, {row.algorithm for row in rows if row.algorithm}, rewrites(module)))
    return Told(lines, [asdict(row) for row in rows])


def _footprint(library: str, algorithms: Collection[str], joined: Collection[str]) -> str:
    """Return a library's memory in megabytes, beside the model's."""
    from ..algorithms.table import get
    from ..runtime.networks.file import read_file

    bytes_ = read_file(Path(library)).footprint
    is_enlarged = bool(joined) or "transform" in {get(each).numerical_class for each in algorithms}
    late = f", {bytes_.prepared / 1e6:.1f} of filters that each process packs" if bytes_.prepared else ""
    call = f", {bytes_.activations / 1e6:.1f} of activations; at most {bytes_.peak / 1e6:.1f} in a call"
    return (
        f"  MB: {bytes_.model / 1e6:.1f} in the model, {bytes_.weights / 1e6:.1f} of weights"
        f"{growth(bytes_.weights, bytes_.model, '--memory small') if is_enlarged else ''}{late}{call if bytes_.peak else ''}"
    )


def _check(arguments: argparse.Namespace) -> None:
    """Raise errors of options and targets before minutes are spent on compiling."""
    if arguments.name is not None and arguments.format != "c":
        raise InputError("--name is the prefix of C functions: add --format c, or leave --name out")
    check_extra("compile", "tvm")
    if arguments.format != "plan" and len(arguments.shape) > 1 and all(split_shapes(arguments.shape)):
        raise InputError(
            f"--format {arguments.format} takes no fixed sizes in addition to free extents: give --shape once for each input, or leave --format out"
        )
    with stage("import"):  # of TVM
        from ..network.options import check_target

    platform = check_target(arguments.target).isa.platform
    if (arguments.format == "web") == platform.has_parts:
        raise InputError(
            f"--format is {arguments.format}, and {arguments.target} is for {platform.name}; give --format web with wasm32"
            " and wasm32-relaxed, and with no other target"
        )
    if arguments.format == "web":
        from ..exporting.web_exporter import check_web

        check_web(arguments.output)
    elif arguments.format == "c":
        from ..exporting.network_exporter import check_export

        check_export(Path(arguments.output).absolute(), arguments.name, check_target(arguments.target).isa)


def _export_c(arguments: argparse.Namespace, source: Source, part: NetworkPart) -> str:
    """Write the C library's folder, with a test on random inputs against the model's library; return why it has no test."""
    from ..accuracy import network_tolerance
    from ..exporting.network_exporter import export_network
    from ..network.options import check_target
    from ..runtime.networks.extents import FreeExtents
    from ..runtime.networks.tensors import tensors_of

    inputs, outputs = (tensors_of(part.description, each) for each in ("inputs", "outputs"))
    free = FreeExtents(part.description, inputs)
    examples, lacking = [], ""
    try:
        for number, size in enumerate(_SIZES if free.extents else _SIZES[:1]):
            arrays, right = answer_random(arguments, source, free.near(size, batch=1 + number))
            answers = [each.astype(made.dtype, copy=False) for each, made in zip(right, outputs, strict=True)]
            examples.append((list(arrays.values()), answers))
    except InputError as error:
        lacking = f"{arguments.output} was written without a test, so its answers are not compared with {source.by}'s: {error}"
        examples = []
    isa = check_target(arguments.target).isa
    most = network_tolerance(arguments.dtype)
    export_network(part, isa, Path(arguments.model).name, arguments.output, arguments.name, examples, most)
    return lacking
