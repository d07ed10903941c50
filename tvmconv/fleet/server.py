"""A server of a fleet: TVM's RPC server, with our functions that measure."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import sys
import threading
from ipaddress import ip_address
from shutil import rmtree
from types import FrameType
from typing import Any

from tvm.error import InternalError
from tvm.rpc import server as rpc_server
from tvm.support.utils import TempDirectory

from ..errors import TuningError
from ..support.parents import end_with_parent
from ..version import __version__
from .protocol import PROTOCOL
from .session import describe, register
from .tracker import Tracker, check_key, parse_address

# TVM's default range of ports, without the last.
PORTS = 9090, 9199
LOOPBACK = "127.0.0.1"
_ANY = ("0.0.0.0", "::")
_tvm_session = rpc_server._serve_loop


def serve(tracker: str, key: str, threads: int, bind: str) -> None:
    """Serve tuners until SIGINT or SIGTERM.

    Parameters
    ----------
    tracker, key
        The tracker's ``HOST:PORT``, and the key that tuners request.
    threads
        Number of threads that kernels use.
    bind
        The address to listen on; ``0.0.0.0``: all networks.

    Raises
    ------
    TuningError
        If no tracker answers, the key or the address is invalid, or tuners could not reach this server.
    """
    where = parse_address(tracker)
    check_key(key)
    with Tracker(tracker) as found:
        if is_loopback(bind) and not found.is_local:
            raise TuningError(
                f"the tracker {tracker} is on another machine, which cannot reach {bind}; give --bind this machine's "
                "address in a trusted network: whoever reaches the server can run anything on it"
            )
    # For all processes here: the measuring one takes its number of threads from this.
    os.environ["OMP_NUM_THREADS"] = str(threads)
    # Sessions are forks, which inherit the functions registered here.
    multiprocessing.set_start_method("fork", force=True)
    register()
    rpc_server._serve_loop = _session
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, _end)
    threading.excepthook = _say
    home = os.getcwd()
    greeted = False
    while True:
        # In this process, where TVM's Server would start another: a killed session ends the listening thread, and nobody would
        # notice.
        state = _listening(bind, where, key)
        if not greeted:
            print(_greeting(f"{bind}:{state.port}", tracker, key), file=sys.stderr, flush=True)
            greeted = True
        state.thread.join()
        state.sock.close()
        os.chdir(home)


def _listening(bind: str, tracker: tuple[str, int], key: str) -> Any:
    """Return TVM's server, listening on a free port."""
    while True:
        try:
            return rpc_server.PopenRPCServerState(
                bind, *PORTS, tracker_addr=tracker, key=key, custom_addr=None if bind in _ANY else bind
            )
        except OSError as error:
            # Two servers that start at once may bind the same port, as TVM reuses addresses: the first to listen gets it.
            if error.errno != errno.EADDRINUSE:
                raise


def is_loopback(address: str) -> bool:
    """Return whether only this machine reaches an address; TuningError if it is invalid."""
    try:
        return ip_address(address).is_loopback
    except ValueError:
        raise TuningError(f"--bind is {address!r}; it must be an IP address, such as {LOOPBACK} or 0.0.0.0") from None


def _greeting(address: str, tracker: str, key: str) -> str:
    found = describe(None)
    return (
        f"tvmconv {__version__} (protocol {PROTOCOL}) measures at {address}, under key {key} of the tracker {tracker}:\n"
        f"  {found.machine}\n  {' '.join(found.host.features)}\n"
        "This server runs whatever it is sent, as the user who started it, and asks nobody for a password. Keep it to a "
        "trusted network. Ctrl-C ends it."
    )


def _session(*arguments: Any) -> None:
    """Serve one tuner, in a process of its own; a killed tuner is no error here, unlike in TVM."""
    end_with_parent()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        _tvm_session(*arguments)
    except InternalError as error:
        print(f"tvmconv rpc-server: the tuner went away: {error}", file=sys.stderr, flush=True)


def _end(number: int, frame: FrameType | None) -> None:
    # A session's measuring process ends with it.
    for child in multiprocessing.active_children():
        child.kill()
    # A copy of the list: the listening thread may remove the folder of an ending session meanwhile.
    for folder in list(TempDirectory.TEMPDIRS):
        rmtree(folder, ignore_errors=True)
    # sys.exit would wait for TVM's listening thread.
    os._exit(0 if number == signal.SIGTERM else 130)


def _say(arguments: threading.ExceptHookArgs) -> None:
    print(f"tvmconv rpc-server: {arguments.exc_value}; it listens again", file=sys.stderr, flush=True)
