"""Client of TVM's RPC tracker with short timeouts: TVM's own client retries a wrong address for a minute."""

from __future__ import annotations

import re
import select
import socket
import struct
from collections import defaultdict
from types import TracebackType
from typing import Any

from tvm.rpc import base

from ..errors import TuningError

ANSWER_SECONDS = 5.0
_START = (
    "start one with:  python -m tvm.exec.rpc_tracker --host ADDRESS --port 9190  (tvmconv[fleet] has what it needs)"
)
# TVM's server takes the text after a space for an option.
_KEY = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT``; TuningError if it is malformed."""
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 2**16:
        raise TuningError(f"the tracker is {text!r}; it must be HOST:PORT, such as 127.0.0.1:9190")
    return host.removeprefix("[").removesuffix("]"), int(port)


def check_key(key: str) -> str:
    """Return `key`; TuningError if TVM does not accept it."""
    if not _KEY.fullmatch(key):
        raise TuningError(f"the key is {key!r}; it must be letters, digits, '-', '_' and '.', such as zen4")
    return key


class Tracker:
    """A connection to a tracker.

    Parameters
    ----------
    address
        ``HOST:PORT``.

    Raises
    ------
    TuningError
        If nothing, or something other than a tracker, answers there. All methods raise it, too.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        try:
            self._socket = socket.create_connection(parse_address(address), ANSWER_SECONDS)
        except OSError as error:
            raise TuningError(f"no tracker answers at {address}: {error.strerror or error}; {_START}") from None
        try:
            self._socket.sendall(struct.pack("<i", base.RPC_TRACKER_MAGIC))
            (magic,) = struct.unpack("<i", base.recvall(self._socket, 4))
        except OSError:
            magic = None
        if magic != base.RPC_TRACKER_MAGIC:
            self._socket.close()
            raise TuningError(f"the server at {address} is not a TVM RPC tracker; {_START}")

    def __enter__(self) -> Tracker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._socket.close()

    @property
    def is_local(self) -> bool:
        """Return whether it is on this machine."""
        return bool(self._socket.getpeername()[0] == self._socket.getsockname()[0])

    def servers(self) -> dict[str, list[str]]:
        """Return the addresses of all servers, busy or not, by key."""
        summary = self._ask([base.TrackerCode.SUMMARY])
        found = defaultdict(list)
        try:
            for server in summary["server_info"]:
                found[server["key"].partition(":")[2]].append(f"{server['addr'][0]}:{server['addr'][1]}")
        except (AttributeError, LookupError, TypeError):
            raise self._wrong() from None
        return found

    def request(self, key: str) -> None:
        """Ask for a server; :meth:`offered` returns it. This connection cannot ask for anything else meanwhile."""
        try:
            base.sendjson(self._socket, [base.TrackerCode.REQUEST, key, "", 1])
        except OSError as error:
            raise self._gone(error) from None

    def offered(self, seconds: float) -> tuple[str, int, str] | None:
        """Return the requested server's host, port and password; None if none becomes free in time."""
        if not select.select([self._socket], [], [], seconds)[0]:
            return None
        try:
            host, port, password = self._receive()
        except (TypeError, ValueError):
            raise self._wrong() from None
        return host, port, password

    def _ask(self, question: list[object]) -> Any:
        try:
            base.sendjson(self._socket, question)
        except OSError as error:
            raise self._gone(error) from None
        return self._receive()

    def _receive(self) -> Any:
        """Return what follows the code of the next answer."""
        try:
            _, answer = base.recvjson(self._socket)
        except OSError as error:
            raise self._gone(error) from None
        except (TypeError, ValueError):  # no JSON, or none of two items
            raise self._wrong() from None
        return answer

    def _wrong(self) -> TuningError:
        return TuningError(f"the tracker at {self.address} sends malformed answers; {_START}")

    def _gone(self, error: OSError) -> TuningError:
        return TuningError(f"the tracker at {self.address} answers no more: {error.strerror or error}")
