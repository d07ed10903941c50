"""`tvmconv compare`: how far the answers of a network are from those of another, such as a quantised one's from its float model's."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from .output import print_json, print_table
from .parsing import add_command, add_json
from .run import RANDOM, complete_inputs, name_inputs
from .sources import read_inputs

if TYPE_CHECKING:
    from numpy import ndarray

    from ..runtime.networks.network import Network
    from .parsing import Subparsers

HEADER = ("output", "shape", "largest difference", "relative L2", "cosine", "same top 1")
EXAMPLE = """\
  tvmconv compare resnet50.so resnet50-int8.so --inputs images.npz
  tvmconv compare resnet50.so resnet50-int8.so --json
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers,
        "compare",
        "Call two compiled networks with the same inputs, and print how much the outputs differ: for example, those of a"
        " quantised model and its float model.",
        EXAMPLE,
        run,
    )
    parser.add_argument("network", metavar="LIBRARY.so", help="the reference library, such as the float model's")
    parser.add_argument(
        "other",
        metavar="OTHER.so",
        help="the library to compare, such as the quantised model's, with the same inputs and outputs",
    )
    parser.add_argument(
        "--inputs",
        action="append",
        default=[],
        metavar="FILE",
        help="FILE.npz: arrays by input name, or [NAME=]FILE.npy: one; each of the input's shape or with an extra leading axis over"
        f" calls; others are {RANDOM}",
    )
    add_json(parser)


@dataclass
class OutputDifference:
    """An output of two networks over all calls.

    Attributes
    ----------
    output, shape
        Its name in the first network, and its shape.
    largest, relative, cosine
        The largest absolute difference; the L2 norm of the difference over that of the first output; the cosine of their angle.
    top1
        Share of the positions whose maximum along the second axis has the same index; None: that axis has one index.
    """

    output: str
    shape: str
    largest: float
    relative: float
    cosine: float
    top1: float | None


def run(arguments: argparse.Namespace) -> int:
    """Print a line for each output."""
    from ..runtime.networks.network import load_network

    network, other = load_network(arguments.network), load_network(arguments.other)
    for which in ("inputs", "outputs"):
        ours, theirs = ([*map(_describe, getattr(each, which))] for each in (network, other))
        if ours != theirs:
            raise InputError(
                f"{arguments.network} has the {which} {'; '.join(ours)}, and {arguments.other} {'; '.join(theirs)}; compare networks with"
                " the same shapes in the same order, both of floating-point numbers or both of the same integers: end a quantised output in"
                " DequantizeLinear"
            )
    calls = list(_calls(network, read_inputs(arguments.inputs)))
    answers: list[list[ndarray]] = []
    for arrays in calls:
        pairs = zip(other.inputs, arrays.values(), strict=True)
        typed = {each.name: array.astype(each.numpy, copy=False) for each, array in pairs}
        answers.append([*network(**arrays).values(), *other(**typed).values()])
    rows = [_compare(tensor, answers, at) for at, tensor in enumerate(network.outputs)]
    if arguments.json:
        print_json([asdict(row) for row in rows])
    else:
        cells = (
            [row.output, row.shape, *map(_cell, (row.largest, row.relative, row.cosine, row.top1))] for row in rows
        )
        print_table(HEADER, list(cells))
    print(f"{len(calls)} {'call' if len(calls) == 1 else 'calls'}", file=sys.stderr)
    return 0


def _describe(tensor: Any) -> str:
    dtype = "floating-point" if "float" in tensor.dtype else tensor.dtype
    return f"{'x'.join(map(str, tensor.shape))} {dtype}"


def _calls(network: Network, given: dict[str, ndarray]) -> Iterator[dict[str, ndarray]]:
    """Yield the inputs of each call; InputError if the network lacks an input, or inputs hold no call or different numbers of calls."""
    given = name_inputs(network, given)
    axes = {each.name: len(each.shape) for each in network.inputs}
    several = {name: len(each) for name, each in given.items() if each.ndim == axes.get(name, 0) + 1}
    if 0 in several.values():
        raise InputError("inputs with an axis over calls hold no call: give at least one")
    if len({*several.values()}) > 1:
        raise InputError(f"inputs differ in the number of calls: {several}")
    for call in range(next(iter(several.values()), 1)):
        arrays = {name: each[call] if name in several else each for name, each in given.items()}
        yield complete_inputs(network, arrays, told=call > 0)


def _compare(tensor: Any, answers: list[list[ndarray]], at: int) -> OutputDifference:
    import numpy as np

    half = len(answers[0]) // 2
    right, got = (np.stack([each[place] for each in answers]).astype(np.float64) for place in (at, half + at))
    norms = [float(np.linalg.norm(each)) for each in (right, got, got - right)]
    channels = right.shape[2] if right.ndim > 2 else 1
    return OutputDifference(
        tensor.name,
        "x".join(map(str, tensor.shape)),
        float(np.abs(got - right).max(initial=0)),
        norms[2] / norms[0] if norms[0] else float(norms[2] > 0),
        float((right * got).sum() / (norms[0] * norms[1])) if norms[0] and norms[1] else float(norms[0] == norms[1]),
        float(np.mean(right.argmax(2) == got.argmax(2))) if channels > 1 else None,
    )


def _cell(number: float | None) -> str:
    return "-" if number is None else f"{number:.6g}"
