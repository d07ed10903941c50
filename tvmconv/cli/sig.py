"""`tvmconv sig`: attributes to a signature, or a signature explained."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from .. import ops
from ..epilogue import format_epilogue
from ..errors import InvalidProblemError
from ..problem import DATA_FORMATS, DTYPES, FILTER_FORMATS, OPS, Problem
from ..signature import format_signature, parse_signature
from .output import print_json, print_table
from .parsing import add_command, add_json, positive

if TYPE_CHECKING:
    from .parsing import Subparsers

EXAMPLE = """\
  tvmconv sig convolution --data 1x56x56x64 --filter 3x3x64x64 --strides 1x1 --dilations 1x1 --auto-pad same_upper
  tvmconv sig convolution_backprop_data --data 1x8x8x64 --filter 4x4x32x64 --strides 2x2 --dilations 1x1 --output-shape 16x16
  tvmconv sig conv2d-n1-i64x56x56-o64x56x56-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32
"""
BACKPROP_ONLY = ("output_shape", "output_padding")


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers, "sig", "Turn an operation's attributes into a signature, or explain a signature.", EXAMPLE, run
    )
    parser.add_argument("what", metavar="OP|SIGNATURE", help=f"{' or '.join(OPS)}, or a signature to explain")
    attributes = parser.add_argument_group("attributes of an operation (shapes and lists are written like 1x56x56x64)")
    attributes.add_argument("--data", type=numbers, metavar="SHAPE", help="shape of the data")
    attributes.add_argument("--filter", type=numbers, metavar="SHAPE", help="shape of the filter")
    attributes.add_argument("--strides", type=numbers, metavar="LIST", help="one per spatial axis")
    attributes.add_argument("--dilations", type=numbers, metavar="LIST", help="one per spatial axis")
    attributes.add_argument("--pads-begin", type=numbers, metavar="LIST", help="one per spatial axis")
    attributes.add_argument("--pads-end", type=numbers, metavar="LIST", help="one per spatial axis")
    attributes.add_argument("--auto-pad", metavar="MODE", help=f"{', '.join(ops.AUTO_PADS)}, in any letter case")
    attributes.add_argument("--output-shape", type=numbers, metavar="LIST", help="backprop: the output's extents")
    attributes.add_argument("--output-padding", type=numbers, metavar="LIST", help="backprop: one per spatial axis")
    attributes.add_argument("--groups", type=positive, metavar="N", help="default 1")
    attributes.add_argument("--data-format", choices=DATA_FORMATS, help="default NXC")
    attributes.add_argument("--filter-format", "--weights-format", choices=FILTER_FORMATS, help="default XIO")
    attributes.add_argument(
        "--same-rule",
        choices=tuple(dict.fromkeys((*ops.CONVOLUTION_SAME_RULES, *ops.BACKPROP_SAME_RULES))),
        help="default: default",
    )
    attributes.add_argument("--dtype", choices=DTYPES, help="default f32")
    attributes.add_argument("--bias", action="store_true", default=None, help="add a bias")
    attributes.add_argument("--epilogue", metavar="STEPS", help="steps that follow, such as add-relu or 'clip(0,6)'")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the signature of an operation, or the fields of a signature."""
    given = {
        name: value
        for name, value in vars(arguments).items()
        if value is not None and name not in ("command", "run", "what", "json")
    }
    if arguments.what in OPS:
        problem = _resolve(arguments.what, given)
    else:
        problem = parse_signature(arguments.what)
        if given:
            options = ", ".join(f"--{name.replace('_', '-')}" for name in given)
            raise InvalidProblemError(
                f"{options} given beside the signature {arguments.what!r}, which says everything itself; "
                f"give an operation ({' or '.join(OPS)}) instead, or leave the options out"
            )
    if arguments.json:
        print_json({"signature": format_signature(problem), **_facts(problem)})
    elif arguments.what in OPS:
        print(format_signature(problem))
    else:
        print_table(("field", "value"), [(name, _text(value)) for name, value in _facts(problem).items()])
    return 0


def numbers(text: str) -> tuple[int, ...]:
    """Parse a list such as ``1x56x56x64``; a sign is kept for the operation's own checks to refuse."""
    try:
        return tuple(int(part) for part in text.split("x"))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a list of whole numbers with x between them, like 1x56x56x64"
        ) from None


def _resolve(op: str, given: dict[str, Any]) -> Problem:
    for name in ("data", "filter", "strides", "dilations"):
        if name not in given:
            raise InvalidProblemError(f"--{name} is missing; {op} needs --data, --filter, --strides and --dilations")
    data_shape, filter_shape, bias = given.pop("data"), given.pop("filter"), given.pop("bias", False)
    if op == "convolution":
        for name in BACKPROP_ONLY:
            if name in given:
                raise InvalidProblemError(
                    f"--{name.replace('_', '-')} is an attribute of convolution_backprop_data, not of convolution"
                )
        problem = ops.convolution(data_shape, filter_shape, **given)
    else:
        problem = ops.convolution_backprop_data(data_shape, filter_shape, **given)
    return problem.with_(bias=True) if bias else problem


def _facts(problem: Problem) -> dict[str, object]:
    return {
        **asdict(problem),
        "epilogue": format_epilogue(problem.epilogue) or None,
        "data_shape": problem.data_shape,
        "filter_shape": problem.filter_shape,
        "output_shape": problem.output_shape,
        "flops": problem.flops,
        "nbytes": problem.nbytes,
    }


def _text(value: object) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value) or "-"
