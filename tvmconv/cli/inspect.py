"""`tvmconv inspect`: a kernel on its way from formulas to machine code, or a model's graph between its passes, as text."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from ..errors import CompilationError, ReplayError, TvmconvError, last_line
from ..lowering.stages import STAGES
from .parsing import add_command, add_records, unsigned

if TYPE_CHECKING:
    from ..lowering.compiler import Choice
    from ..problem import Problem
    from ..targets.target import Target
    from .parsing import Subparsers

_SIGNATURE = "conv2d-n1-i64x56x56-o64x56x56-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32"
EXAMPLE = f"""\
  tvmconv inspect {_SIGNATURE} --stage schedule
  tvmconv inspect {_SIGNATURE} --algorithm direct --target x86-64-v3 --stage asm
  tvmconv inspect {_SIGNATURE} --stage passes
  tvmconv inspect {_SIGNATURE} --algorithm direct --stage padding
  tvmconv inspect {_SIGNATURE} --target cuda:sm_90 --stage cuda
  tvmconv inspect model.onnx --stage passes
  tvmconv inspect model.onnx --stage channels-last
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers,
        "inspect",
        "Print one stage of the kernel that `tvmconv build` generates for a signature: with its tuned schedule if there is a "
        "record, else the default one of the algorithm with the lowest estimate; or the graph of an ONNX model after a pass of "
        "tvmconv compile. Nothing is run, so the target may be another machine.",
        EXAMPLE,
        run,
    )
    parser.add_argument("signature", metavar="SIGNATURE|MODEL.onnx", help="see: tvmconv sig --help; or an ONNX file")
    stages = "; ".join(f"{name}: {what}" for name, what in STAGES.items())
    parser.add_argument(
        "--stage", required=True, metavar="STAGE", help=f"{stages}; or a pass, by its name: what it leaves"
    )
    parser.add_argument(
        "--target", default="host", metavar="TARGET", help="as for tvmconv build (default: %(default)s)"
    )
    parser.add_argument(
        "--algorithm",
        metavar="NAME",
        help="the default schedule of this algorithm; tvmconv explain SIGNATURE --algorithms lists them",
    )
    parser.add_argument(
        "--sketch", type=unsigned, metavar="N", help="another of the algorithm's sketches, with its default choices"
    )
    add_records(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the stage; a line about its kernel goes to stderr."""
    from ..building.builder import parse_targets
    from ..lowering.stages import check_stage, show
    from ..signature import parse_signature
    from ..tuning.replay import TVM_ERRORS

    if arguments.signature.lower().endswith(".onnx"):
        return _print_network(arguments)
    problem = parse_signature(arguments.signature)
    (target,) = parse_targets([arguments.target])
    check_stage(arguments.stage, target)
    choice, origin = _choice(arguments, problem, target)
    print(f"{choice.algorithm}, sketch {choice.sketch}, {origin}, for {target.name}", file=sys.stderr)
    try:
        print(show(arguments.stage, problem, target, choice))
    except TVM_ERRORS as error:
        if isinstance(error, TvmconvError):
            raise
        raise CompilationError(
            f"{choice.algorithm} does not compile: {type(error).__name__}: {last_line(error)}; "
            "tvmconv build would take the next algorithm: give one by --algorithm"
        ) from error
    return 0


def _print_network(arguments: argparse.Namespace) -> int:
    """Print the passes of networks, or a model's graph after one of them."""
    from ..network import passes
    from ..network.options import Options
    from ..network.read.onnx.reader import as_relax, fix_shapes
    from ..tuning.records import records_of

    if arguments.stage == "passes":
        print(passes.listing())
        return 0
    passes.check_pass(arguments.stage)
    module = as_relax(fix_shapes(arguments.signature), arguments.signature)
    options = Options(arguments.target, records_of(arguments.records))
    print(passes.run(module, options, arguments.stage).script(show_meta=False))
    return 0


def _choice(arguments: argparse.Namespace, problem: Problem, target: Target) -> tuple[Choice, str]:
    """Return the schedule of the options, and its source: a record or the default."""
    from ..building.decision.weigh import first_choice
    from ..lowering.compiler import Choice, default_choice
    from ..lowering.stages import check_algorithm
    from ..tuning.records import records_of

    default = default_choice(problem, target)
    if arguments.algorithm is not None or arguments.sketch is not None:
        name = arguments.algorithm or default.algorithm
        check_algorithm(name, problem, target)
        return Choice(name, arguments.sketch or 0), "default choices"
    try:
        choice, record = first_choice(problem, target, records_of(arguments.records))
    except ReplayError as error:
        print(f"the tuning record no longer fits: {error}", file=sys.stderr)
        return default, "the default schedule"
    return choice, "a tuning record's schedule" if record else "the default schedule"
