"""Parse arguments that several commands share."""

from __future__ import annotations

import argparse
import re
import shutil
import textwrap
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NoReturn

from ..algorithms.table import MATHS
from ..runtime.processors import usable_processors
from ..support.timing import VARIABLE as TIMING

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


class Suggesting(argparse.ArgumentParser):
    """Says which command or value was meant."""

    def error(self, message: str) -> NoReturn:
        """Print the usage and the error, and exit."""
        if found := re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message):
            message += _meant(found[1], re.findall(r"[\w-]+", found[2]))
        super().error(message)


class AnyOrder(Suggesting):
    """Parser that takes positional arguments before, between and after options: ``list MODEL --shape 1x3x8x8 BUNDLE``."""

    _within = False
    _given: tuple[str, ...] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse; argparse's own intermixed parsing calls this again for its two passes."""
        if self._within:
            return super().parse_known_args(args, namespace)
        self._within, self._given = True, tuple(args)
        try:
            namespace, unknown = self.parse_known_intermixed_args(args, namespace)
        finally:
            self._within = False
        if unknown:  # reported here, with the command's own usage
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return namespace, unknown

    def error(self, message: str) -> NoReturn:
        """Report unknown options before missing ones: the missing one may be misspelt."""
        known = self._option_string_actions
        names = (each.partition("=")[0] for each in self._given if each.startswith("--"))
        for name in names:
            if not any(option.startswith(name) for option in known):
                message = f"unrecognized arguments: {name}{_meant(name, known)}"
                break
        super().error(message)


def _meant(given: str, allowed: Iterable[str]) -> str:
    close = get_close_matches(given, allowed, 1)
    return f"; did you mean {close[0]}?" if close else ""


def add_command(
    subparsers: Subparsers, name: str, summary: str, example: str, run: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    """Add the command `name`; its ``--help`` ends in `example`, and `run` returns its exit code."""
    parser = subparsers.add_parser(
        name,
        help=f"{re.split(r'[.:;](?: |$)', summary)[0]}.",
        description=textwrap.fill(summary, shutil.get_terminal_size().columns - 2, break_on_hyphens=False),
        epilog=f"example:\n{example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    return parser


def add_threads(parser: argparse.ArgumentParser) -> None:
    """Add the option for the number of threads, which may be at most that of the processors."""
    parser.add_argument("--threads", type=_threads, metavar="N", help="default: all processors, or OMP_NUM_THREADS")


def add_timing(parser: argparse.ArgumentParser) -> None:
    """Add the options of commands that time kernels."""
    add_threads(parser)
    parser.add_argument(
        "--seconds",
        type=positive_seconds,
        default=0.2,
        metavar="S",
        help="time for each measurement (default 0.2)",
    )


def add_budget(parser: argparse.ArgumentParser) -> None:
    """Add the options that limit tuning before a build."""
    parser.add_argument(
        "--trials", type=unsigned, default=0, metavar="N", help="tune first: schedules to try for each kernel"
    )
    parser.add_argument(
        "--seconds", type=positive_seconds, metavar="S", help="tune first: time to spend on all kernels together"
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add ``--json``."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def add_no_cache(parser: argparse.ArgumentParser) -> None:
    """Add ``--no-cache``."""
    parser.add_argument(
        "--no-cache", action="store_true", help="rebuild every kernel, without the cache (see: tvmconv cache)"
    )


def add_timing_table(parser: argparse.ArgumentParser) -> None:
    """Add ``--timing``."""
    parser.add_argument(
        "--timing",
        action="store_true",
        help=f"print where the time went on stderr at the end; {TIMING}=1 does so for any program",
    )


def add_math(parser: argparse.ArgumentParser) -> None:
    """Add ``--math``."""
    parser.add_argument(
        "--math",
        choices=MATHS,
        default="default",
        help="strict: no transforms such as Winograd; tf32: on GPUs, f32 factors may be rounded to TF32; "
        "reproducible: the same bits on every CPU (default: %(default)s)",
    )


def add_records(parser: argparse.ArgumentParser) -> None:
    """Add ``--records``."""
    parser.add_argument(
        "--records",
        metavar="FOLDER",
        help="folder of tuning records (default: $XDG_DATA_HOME/tvmconv or ~/.local/share/tvmconv), used "
        "before the shipped ones",
    )


def unsigned(text: str) -> int:
    """Parse a number of at least 0."""
    return _number(text, 0)


def positive(text: str) -> int:
    """Parse a number of at least 1."""
    return _number(text, 1)


def _threads(text: str) -> int:
    value, most = positive(text), usable_processors()
    if value > most:
        raise argparse.ArgumentTypeError(f"{value} is given, and this process may use {most} processors")
    return value


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
