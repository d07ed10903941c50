"""One server as a tuner sees it: a session of TVM's RPC."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tvm import rpc
from tvm.error import RPCError

from ..errors import TvmconvError
from ..measuring.measure import Check, Measured
from ..measuring.race import Race, Times
from ..targets.target import Target
from ..version import __version__
from .protocol import (
    DESCRIBE,
    MEASURE,
    PROTOCOL,
    VERSION,
    WAIT,
    Description,
    answer_from_text,
    description_of,
    target_to_text,
    task_to_text,
)

# Libraries that a server keeps: further candidates of a library follow soon or never.
KEPT = 8
# Time beyond the limit of a measurement within which the server should have ended it.
GRACE_SECONDS = 30.0


class LostError(TvmconvError):
    """A server that died."""


class RefusedError(TvmconvError):
    """A server that cannot be used."""


class Remote:
    """A server. The requesting thread waits for its answers; other threads see by :attr:`silent` for how long.

    Parameters
    ----------
    host, port
        Its address.

    Attributes
    ----------
    address
        ``HOST:PORT``.
    """

    def __init__(self, host: str, port: int) -> None:
        self.address = f"{host}:{port}"
        self._where = (host, port)
        self._asked: float | None = None
        self._session: Any = None
        self._uploaded: dict[str, str] = {}
        # TVM's session crashes if a library is uploaded under the name of a loaded one.
        self._numbers = itertools.count()

    def __str__(self) -> str:
        return self.address

    @property
    def silent(self) -> float:
        """Seconds since the oldest request without an answer."""
        asked = self._asked
        return 0.0 if asked is None else time.monotonic() - asked

    def connect(self, password: str, target: Target | None) -> Description:
        """Open a session; return the server's description for a target, or for its own CPU.

        Raises
        ------
        RefusedError
            If it is no server of ours, or of another protocol.
        LostError
            If it does not answer, or the connection breaks.
        """
        with self._asking():
            self._session = rpc.connect(*self._where, password)
        describe = self._function(DESCRIBE)
        with self._asking():
            answer = json.loads(describe(target_to_text(target)))
            version = VERSION(answer)
        if version["protocol"] != PROTOCOL:
            raise RefusedError(
                f"it speaks version {version['protocol']} of the protocol (tvmconv {version['tvmconv']}), and this tvmconv "
                f"{__version__} version {PROTOCOL}; install the same tvmconv on both"
            )
        with self._asking():
            description = description_of(answer)
        self._measure, self._wait = self._function(MEASURE), self._function(WAIT)
        return description

    def measure(self, task: Check | Race, seconds: float, closing: Callable[[], bool]) -> Measured | Times | None:
        """Measure; return None if `closing` returns true before there is an answer.

        Raises
        ------
        LostError
            If the server dies.
        RefusedError
            If its answer is invalid.
        WorkerDiedError, TimeoutExceededError, TvmconvError
            Errors of measuring.
        """
        self._forget()
        libraries = [task.library] if isinstance(task, Check) else list(task.libraries)
        names = [replace(each, path=self._upload(each.path)) for each in libraries]
        end = time.monotonic() + seconds + GRACE_SECONDS
        with self._asking():
            text = self._measure(task_to_text(task, names, seconds))
        while not text:
            if closing():
                return None
            if time.monotonic() > end:
                raise LostError(f"it did not end a measurement in {seconds:.0f} s")
            with self._asking():
                text = self._wait()
        try:
            return answer_from_text(text, task)
        except ValueError as error:  # SchemaError is one
            raise RefusedError(f"its answer is invalid: {error}") from None

    def _function(self, name: str) -> Any:
        try:
            with self._asking():
                return self._session.get_function(name)
        except AttributeError:
            raise RefusedError("it is not a tvmconv server; start it with tvmconv rpc-server") from None

    def _upload(self, path: str) -> str:
        if path not in self._uploaded:
            name = f"{next(self._numbers)}.so"
            content = bytearray(Path(path).read_bytes())
            with self._asking():
                self._session.upload(content, name)
            self._uploaded[path] = name
        return self._uploaded[path]

    def _forget(self) -> None:
        while len(self._uploaded) > KEPT:
            oldest = next(iter(self._uploaded))
            with self._asking():
                self._session.remove(self._uploaded.pop(oldest))

    @contextmanager
    def _asking(self) -> Iterator[None]:
        self._asked = time.monotonic()
        try:
            yield
        except RPCError as error:
            raise LostError(f"it failed: {_words(error)}") from None
        except RuntimeError as error:  # TVM's error of broken connections
            raise LostError(f"its connection broke: {_words(error)}") from None
        except ValueError as error:
            raise RefusedError(f"its answer is invalid: {error}") from None
        finally:
            self._asked = None

    def close(self) -> None:
        """End the session: the server is free for others."""
        self._session = self._measure = self._wait = None


def _words(error: RuntimeError) -> str:
    return " ".join(str(error).split()).removeprefix("RPCError: Error caught from RPC call: ")
