"""`tvmconv export-wheel`: a bundle or a network as a wheel."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from .parsing import add_command

if TYPE_CHECKING:
    from .parsing import Subparsers

EXAMPLE = """\
  tvmconv export-wheel detector.so --name detector-kernels --output dist
  pip install dist/detector_kernels-*.whl
  python -c 'import detector_kernels; print(detector_kernels.INPUTS, detector_kernels.run)'
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers,
        "export-wheel",
        "Write a wheel of a bundle or a network. It depends on tvmconv's run time, which pip installs with it. Its module has"
        " run(**inputs) for a network, kernel(signature) and node(name) for a bundle.",
        EXAMPLE,
        run,
    )
    parser.add_argument("path", metavar="BUNDLE", help="the bundle's folder, or a network's file")
    parser.add_argument("-o", "--output", required=True, metavar="DIR", help="the folder to write the wheel to")
    parser.add_argument("--name", required=True, help="name of the distribution, such as detector-kernels")
    parser.add_argument("--version", default="1.0", help="its version (default: %(default)s)")


def run(arguments: argparse.Namespace) -> int:
    """Export; print the wheel's path."""
    from ..exporting.wheel import export_wheel

    print(export_wheel(arguments.path, arguments.output, arguments.name, arguments.version))
    return 0
