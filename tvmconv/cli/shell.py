"""`tvmconv shell`: completion for shells, and the man page, from the parser of all commands."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ..errors import check_extra
from .parsing import add_command

if TYPE_CHECKING:
    from .parsing import Subparsers

EXAMPLE = """\
  tvmconv shell bash > ~/.local/share/bash-completion/completions/tvmconv
  tvmconv shell zsh > ~/.zfunc/_tvmconv
  tvmconv shell man > ~/.local/share/man/man1/tvmconv.1
"""
MAN = "man"


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers,
        "shell",
        "Print the completion script of a shell, or the man page. It needs shtab, or argparse-manpage: tvmconv[shell].",
        EXAMPLE,
        run,
    )
    parser.add_argument("what", choices=("bash", "zsh", "tcsh", MAN), help="the shell; man prints the man page")


def run(arguments: argparse.Namespace) -> int:
    """Print the completion script, or the man page."""
    from . import parser

    check_extra("shell", "argparse_manpage" if arguments.what == MAN else "shtab")
    print(_page(parser()) if arguments.what == MAN else _completion(parser(), arguments.what))
    return 0


def _completion(parser: argparse.ArgumentParser, shell: str) -> str:
    import shtab

    for command in commands(parser).values():
        for action in command._actions:
            if action.nargs != 0 and action.choices is None:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
    return str(shtab.complete(parser, shell))


def _page(parser: argparse.ArgumentParser) -> str:
    from argparse_manpage.manpage import Manpage

    parser.man_short_description = parser.description  # type: ignore[attr-defined]
    return str(Manpage(parser, format="single-commands-section"))


def commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of all commands by their names."""
    (found,) = (each for each in parser._actions if isinstance(each, argparse._SubParsersAction))
    return dict(found.choices)
