"""What several commands' argument parsers share."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..algorithms import MATHS
from ..errors import SourceError
from ..problem import DATA_FORMATS, DTYPES, FILTER_FORMATS, Problem

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_command(
    subparsers: Subparsers, name: str, summary: str, example: str, run: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    """Add the command `name`; its ``--help`` ends in `example`, and `run` returns its exit code."""
    parser = subparsers.add_parser(
        name,
        help=summary,
        description=summary,
        epilog=f"example:\n{example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    return parser


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add ``--json``."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def add_math(parser: argparse.ArgumentParser) -> None:
    """Add ``--math``."""
    parser.add_argument(
        "--math",
        choices=MATHS,
        default="default",
        help="strict: no algorithm that transforms its numbers, as Winograd does; tf32: on GPUs, f32 numbers may be"
        " rounded to TF32 before they are multiplied (default: %(default)s)",
    )


def add_sources(parser: argparse.ArgumentParser) -> None:
    """Add ``SOURCE...`` and the options that override what the sources say."""
    parser.add_argument(
        "sources", nargs="+", metavar="SOURCE", help="an ONNX file, a TOML file of problems, or a signature"
    )
    parser.add_argument("--batch", type=whole, metavar="N", help="the size of a free batch dimension")
    parser.add_argument("--dtype", choices=DTYPES, help="build for this type instead")
    parser.add_argument("--data-format", choices=DATA_FORMATS, help="build for this data layout instead")
    parser.add_argument("--filter-format", choices=FILTER_FORMATS, help="build for this filter layout instead")


def read_sources(arguments: argparse.Namespace) -> list[Problem]:
    """Return the distinct problems that the arguments of :func:`add_sources` name, in their order.

    Raises
    ------
    SourceError
        If a source cannot be read, or all of them together hold no convolution.
    """
    from ..frontends import read_source

    overrides: dict[str, Any] = {
        name: getattr(arguments, name) for name in ("batch", "dtype", "data_format", "filter_format")
    }
    problems = [problem for source in arguments.sources for problem in read_source(source, **overrides)]
    if not problems:
        raise SourceError(f"no convolution in {', '.join(arguments.sources)}")
    return list(dict.fromkeys(problems))


def whole(text: str) -> int:
    """Parse a number of at least 0."""
    return _number(text, 0)


def positive(text: str) -> int:
    """Parse a number of at least 1."""
    return _number(text, 1)


def positive_seconds(text: str) -> float:
    """Parse a number of seconds above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value


def _number(text: str, least: int) -> int:
    value = int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else -1
    if value < least:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {least}")
    return value
