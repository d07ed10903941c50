"""A tracker's answers that are malformed: errors that name it."""

from __future__ import annotations

import socket
import struct

import pytest

from tvmconv.errors import TuningError
from tvmconv.fleet.tracker import Tracker


@pytest.mark.parametrize("answer", [b"{", b"3", b"[0]", b"[0, [1]]", b"[0, 5]", b"\xff"])
def test_a_malformed_answer_is_an_error(answer: bytes) -> None:
    ours, theirs = socket.socketpair()
    tracker = Tracker.__new__(Tracker)
    tracker.address, tracker._socket = "127.0.0.1:9190", ours
    with ours, theirs:
        for ask in (tracker.servers, lambda: tracker.offered(1)):
            theirs.sendall(struct.pack("<i", len(answer)) + answer)
            with pytest.raises(TuningError, match="malformed"):
                ask()
