"""`tvmconv export-c`: a bundle as a library for C."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ..exporting import THREADS
from .parsing import add_command

if TYPE_CHECKING:
    from .parsing import Subparsers

EXAMPLE = """\
  tvmconv export-c resnet50.bundle --output resnet50-c
  tvmconv export-c detector.bundle --output detector-c --name detector --shared --threads pthreads
  tvmconv export-c detector.bundle --output detector-c --target x86-64-v3
  tvmconv export-c detector.bundle --output detector-arm --target neoverse-n1 --target neoverse-v1
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers,
        "export-c",
        "Write the kernels of a bundle as a library for C and C++: headers, an archive, CMake and pkg-config files, and a test. "
        "It needs no Python and, with --threads none, only libc. An earlier export in the folder is replaced.",
        EXAMPLE,
        run,
    )
    parser.add_argument("bundle", metavar="BUNDLE", help="the bundle's folder")
    parser.add_argument("-o", "--output", required=True, metavar="DIR", help="the folder to write")
    parser.add_argument("--name", help="prefix of the library and its functions (default: the bundle's name)")
    parser.add_argument("--shared", action="store_true", help="also build a shared library")
    parser.add_argument(
        "--target",
        action="append",
        metavar="TARGET",
        help="one of the bundle's targets (default: all CPUs); may be given several times for one instruction set",
    )
    parser.add_argument(
        "--threads",
        choices=THREADS,
        default="none",
        help="the library's own threads, for programs that do not pass theirs (default: %(default)s)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Export; print the folder."""
    from ..exporting.exporter import export_c

    print(
        export_c(
            arguments.bundle,
            arguments.output,
            arguments.name,
            targets=arguments.target,
            shared=arguments.shared,
            threads=arguments.threads,
        )
    )
    return 0
