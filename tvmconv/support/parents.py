"""Processes that end with the one that started them, even if that is killed."""

from __future__ import annotations

import ctypes
import signal
import sys

_SET_PARENT_DEATH_SIGNAL = 1  # prctl(2)


def end_with_parent() -> None:
    """Let Linux kill this process when the thread that started it ends; elsewhere it ends at its next read from the parent."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
