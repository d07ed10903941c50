"""Errors and texts as the commands of this package print them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import wraps

from tvmconv.errors import TvmconvError


def print_errors(main: Callable[[Sequence[str] | None], int]) -> Callable[..., int]:
    """Return a command that prints the error of `main`, if it raises one, and returns 1."""

    @wraps(main)
    def command(argv: Sequence[str] | None = None) -> int:
        try:
            return main(argv)
        except TvmconvError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1

    return command
