"""`tvmconv compile`: a whole network as one library."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from ..checks import MEMORIES
from ..errors import InputError, SourceError, UnsupportedMachineError, VerificationError, missing_extra
from .output import check_output, print_json, progress_bar
from .parsing import add_command, add_json, add_math, add_records, unsigned
from .sources import parse_dim, parse_shape

if TYPE_CHECKING:
    from onnx import ModelProto

    from ..exporting.network_part import NetworkPart
    from .parsing import Subparsers

FORMATS = ("plan", "c", "relax")
EXAMPLE = """\
  tvmconv compile resnet50.onnx --output resnet50.so
  tvmconv compile detector.onnx --shape x=1x3x640x640 --output detector.so
  tvmconv compile detector.onnx --cut boxes --cut scores --output detector.so
  tvmconv compile resnet50.onnx --batch 8 --target x86-64-v3 --output resnet50.so
  tvmconv compile resnet50.onnx --format c --target neoverse-n1 --output resnet50
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers,
        "compile",
        "Compile a whole ONNX model into one library: its convolutions, and what follows them, by the kernels that tvmconv"
        " build would give them, what lies between as few loops as possible.",
        EXAMPLE,
        run,
    )
    parser.add_argument("model", metavar="MODEL.onnx", help="an ONNX file")
    parser.add_argument(
        "-o",
        "--output",
        required=True,
        metavar="LIBRARY.so",
        help="the library, or with --format c the folder; replaced whole",
    )
    parser.add_argument(
        "--target", default="host", metavar="TARGET", help="host (default), or an LLVM CPU name such as x86-64-v3"
    )
    parser.add_argument(
        "--shape",
        action="append",
        type=parse_shape,
        default=[],
        metavar="NAME=1x3x640x640",
        help="the shape of an input; NAME= may be left out where there is one",
    )
    parser.add_argument(
        "--dim", action="append", type=parse_dim, default=[], metavar="NAME=N", help="the size of a named dimension"
    )
    parser.add_argument("--batch", type=unsigned, metavar="N", help="the size of a free batch dimension")
    parser.add_argument(
        "--layout",
        choices=("NXC", "NCX"),
        help="of the data between operators: NXC (default), channels last, or NCX, as in the model",
    )
    parser.add_argument(
        "--cut",
        action="append",
        default=[],
        metavar="TENSOR",
        help="an output in place of the model's, such as what NonMaxSuppression takes; may be given several times",
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default=FORMATS[0],
        help="plan (default): a library that needs tvm-ffi alone; c: a folder with a header, an archive and a shared library for C,"
        " which need libc alone; relax: a library of TVM's Relax virtual machine",
    )
    parser.add_argument(
        "--name", help="what a library for C and its functions are called (default: as the folder); with --format c"
    )
    parser.add_argument(
        "--bundle",
        metavar="BUNDLE",
        help="call the kernels of this bundle, which tvmconv run then needs, too; what it lacks becomes part of the library;"
        " with --format relax",
    )
    parser.add_argument(
        "--memory",
        choices=MEMORIES,
        default="default",
        help="small: no transforms, as with --math strict, and no joined filters that are larger than what they are of"
        " (default: %(default)s)",
    )
    add_math(parser)
    add_records(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Compile; print the library's path, or what became of each convolution."""
    from ..frontends.shapes import Bucket

    _check(arguments)
    from ..network import lower as relax_network
    from ..network.compile import export, export_part
    from ..network.passes import report, rewrites, use_kernels
    from ..network.read.onnx.reader import as_relax, fixed
    from ..runtime.networks.file import read_file
    from ..tuning.records import records_of

    bucket = Bucket(dict(arguments.shape), dict(arguments.dim), arguments.batch)
    model = fixed(arguments.model, bucket, arguments.cut)
    module = as_relax(model, arguments.model)
    with progress_bar("compiling") as progress:
        module = use_kernels(
            module,
            arguments.target,
            records_of(arguments.records),
            layout=arguments.layout,
            math=arguments.math,
            progress=progress,
            bundle=arguments.bundle,
            memory=arguments.memory,
        )
    if arguments.format == "relax":
        relax_network.export(relax_network.compile_module(module, arguments.target), arguments.output)
    elif arguments.format == "c":
        _export_c(arguments, model, export_part(module, arguments.target))
    else:
        export(module, arguments.output, arguments.target)
    rows = report(module)
    ours = sum(not row.why for row in rows)
    print(f"{arguments.model}: {ours} of {len(rows)} convolutions and products by our kernels", file=sys.stderr)
    if arguments.bundle:
        called = sum(bool(row.library) for row in rows)
        print(f"  {called} of these are calls into {arguments.bundle}, which tvmconv run needs, too", file=sys.stderr)
    for row in rows:
        if row.why:
            print(f"  by TVM: {row.name}: {row.why}", file=sys.stderr)
    for line in rewrites(module):
        print(f"  joined: {line}", file=sys.stderr)
    if arguments.format == "plan":
        bytes_ = read_file(Path(arguments.output)).footprint
        print(
            f"  MB: {bytes_.model / 1e6:.1f} in the model, {bytes_.weights / 1e6:.1f} of weights,"
            f" {bytes_.activations / 1e6:.1f} of activations; at most {bytes_.peak / 1e6:.1f} in a call",
            file=sys.stderr,
        )
    if arguments.json:
        print_json([asdict(row) for row in rows])
    else:
        print(arguments.output)
    if arguments.format != "c":  # whose test does it
        _compare(arguments, model)
    return 0


def _check(arguments: argparse.Namespace) -> None:
    """Raise what can be known before minutes are spent."""
    from importlib.util import find_spec

    if Path(arguments.model).suffix.lower() != ".onnx":
        raise SourceError(f"{arguments.model!r} is no ONNX file; tvmconv compile reads .onnx")
    if arguments.bundle and arguments.format != "relax":
        raise InputError("--bundle is for TVM's virtual machine: give --format relax, too, or leave --bundle out")
    if arguments.name is not None and arguments.format != "c":
        raise InputError("--name is what functions for C are called: give --format c, too, or leave --name out")
    if find_spec("tvm") is None:
        raise missing_extra("compile", "tvm")
    if arguments.format == "c":
        from ..exporting.network_exporter import check_export
        from ..network.lower import check_target

        check_export(Path(arguments.output).absolute(), arguments.name, check_target(arguments.target).isa)
    else:
        check_output(Path(arguments.output), mapped=True)


def _export_c(arguments: argparse.Namespace, model: ModelProto, part: NetworkPart) -> None:
    """Write the folder; its test is on random inputs, with onnxruntime's answers."""
    from ..exporting.network_exporter import export_network
    from ..network.lower import check_target
    from ..network.read.onnx.compare import answers
    from ..runtime.networks.base import random_arrays, tensors_of

    arrays = random_arrays(tensors_of(part.description, "inputs"))
    try:
        examples = (list(arrays.values()), answers(model, arrays))
    except InputError as error:
        print(f"  without a test, for onnxruntime has no answers: {error}", file=sys.stderr)
        examples = None
    isa = check_target(arguments.target).isa
    export_network(part, isa, Path(arguments.model).name, arguments.output, arguments.name, examples)


def _compare(arguments: argparse.Namespace, model: ModelProto) -> None:
    """Compare the library's answers with onnxruntime's where this machine can run it."""
    from ..network.read.onnx.compare import differences
    from .networks import load_network

    try:
        found = differences(model, load_network(arguments.output, arguments.bundle))
    except (UnsupportedMachineError, InputError) as error:
        print(f"  not compared with onnxruntime: {error}", file=sys.stderr)
        return
    if found:
        raise VerificationError(
            f"{arguments.output} was written, but on random inputs its answers are not onnxruntime's (relative L2 error):"
            f" {', '.join(found)}. TVM's frontend may have an operator wrong, unless one of the network's jumps (top-k,"
            f" rounding); the convolutions alone can be built: tvmconv build {arguments.model}"
        )
