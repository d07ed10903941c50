"""`tvmconv rpc-server`: measure kernels for tuners on other machines."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ..errors import check_extra
from .parsing import add_command, add_threads

if TYPE_CHECKING:
    from .parsing import Subparsers

EXAMPLE = """\
  tvmconv rpc-server --tracker 127.0.0.1:9190 --key zen4

TVM's tracker comes first, the tuner last:
  python -m tvm.exec.rpc_tracker --host 127.0.0.1 --port 9190
  tvmconv tune resnet50.onnx --tracker 127.0.0.1:9190 --key zen4 --target remote

The server runs whatever it is sent, as the user who starts it, without a
password: it listens on this machine alone unless --bind says otherwise, and
belongs on a trusted network. Run one server on a machine, and nothing else.
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers,
        "rpc-server",
        "Measure kernels that tvmconv tune builds on another machine: a TVM RPC server, found through a tracker.",
        EXAMPLE,
        run,
    )
    parser.add_argument("--tracker", required=True, metavar="HOST:PORT", help="TVM's RPC tracker")
    parser.add_argument(
        "--key", required=True, metavar="KEY", help="name of this kind of machine, which tuners request"
    )
    add_threads(parser)
    parser.add_argument(
        "--bind",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="the IP address to listen on (default: %(default)s, this machine alone; 0.0.0.0: all networks)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve until interrupted."""
    check_extra("server", "tvm")
    from ..fleet.server import serve
    from ..runtime.processors import kernel_threads

    serve(arguments.tracker, arguments.key, arguments.threads or kernel_threads(), arguments.bind)
    return 0
