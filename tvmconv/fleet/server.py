"""A server of a fleet: TVM's RPC server, with our measuring in it."""

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

# TVM's own; the last one is not used.
PORTS = 9090, 9199
LOOPBACK = "127.0.0.1"
_ANY = ("0.0.0.0", "::")
_tvm_session = rpc_server._serve_loop


def serve(tracker: str, key: str, threads: int, bind: str) -> None:
    """Serve tuners until SIGINT or SIGTERM.

    Parameters
    ----------
    tracker, key
        The tracker's ``HOST:PORT``, and what tuners ask it for.
    threads
        That kernels use.
    bind
        The address to listen on; of all networks: ``0.0.0.0``.

    Raises
    ------
    TuningError
        If no tracker is there, the key or the address is none, or tuners could not reach this server.
    """
    where = parse_address(tracker)
    check_key(key)
    with Tracker(tracker) as found:
        if is_loopback(bind) and not found.is_local:
            raise TuningError(
                f"the tracker {tracker} is on another machine, which cannot reach {bind}; give --bind this machine's "
                "address in a trusted network: whoever reaches the server can run anything on it"
            )
    # The threads of whatever runs here: the process that measures says how many they are by this.
    os.environ["OMP_NUM_THREADS"] = str(threads)
    # Sessions are forks, which have the functions that are registered here.
    multiprocessing.set_start_method("fork", force=True)
    register()
    rpc_server._serve_loop = _session
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, _end)
    threading.excepthook = _say
    home = os.getcwd()
    greeted = False
    while True:
        # In this process, where TVM's Server starts another: a session that is killed ends the thread that listens, and
        # nobody would notice.
        state = _listening(bind, where, key)
        if not greeted:
            print(_greeting(f"{bind}:{state.port}", tracker, key), file=sys.stderr, flush=True)
            greeted = True
        state.thread.join()
        state.sock.close()
        os.chdir(home)


def _listening(bind: str, tracker: tuple[str, int], key: str) -> Any:
    """Return TVM's server, which listens on a port of its own."""
    while True:
        try:
            return rpc_server.PopenRPCServerState(
                bind, *PORTS, tracker_addr=tracker, key=key, custom_addr=None if bind in _ANY else bind
            )
        except OSError as error:
            # Two that start at once may bind one port, as TVM reuses addresses: the first to listen has it.
            if error.errno != errno.EADDRINUSE:
                raise


def is_loopback(address: str) -> bool:
    """Return whether only this machine reaches an address; TuningError if it is none."""
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
    """Serve one tuner, in a process of its own. That it was killed is no error here, which to TVM it is."""
    end_with_parent()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        _tvm_session(*arguments)
    except InternalError as error:
        print(f"tvmconv rpc-server: the tuner went away: {error}", file=sys.stderr, flush=True)


def _end(number: int, frame: FrameType | None) -> None:
    # A session's own child ends with it.
    for child in multiprocessing.active_children():
        child.kill()
    # Of a copy, unlike TVM's own: the thread that listens removes the folder of a session that ends at this moment.
    for folder in list(TempDirectory.TEMPDIRS):
        rmtree(folder, ignore_errors=True)
    # TVM's thread that listens would be waited for.
    os._exit(0 if number == signal.SIGTERM else 130)


def _say(arguments: threading.ExceptHookArgs) -> None:
    print(f"tvmconv rpc-server: {arguments.exc_value}; it listens again", file=sys.stderr, flush=True)
