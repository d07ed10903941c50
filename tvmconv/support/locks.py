"""Locks of folders among processes: by flock; on Windows, which cannot lock folders, by a file of the user's for each."""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl: Any = None  # type: ignore[no-redef]

_AGAIN_SECONDS = 0.05


def lock_folder(folder: Path, wait: bool = True) -> int:
    """Return a descriptor that holds an exclusive lock of `folder` until it is closed, or this process ends.

    Raises
    ------
    BlockingIOError
        If another process has the lock, and `wait` is false.
    """
    if fcntl is None:
        return _lock_file(folder, wait)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _lock_file(folder: Path, wait: bool) -> int:
    import msvcrt

    system: Any = msvcrt
    place = os.path.normcase(os.path.realpath(folder))
    files = Path(tempfile.gettempdir()) / "tvmconv-locks"
    files.mkdir(exist_ok=True)
    name = hashlib.sha256(place.encode(errors="surrogatepass")).hexdigest()
    descriptor = os.open(files / name, os.O_RDWR | os.O_CREAT)
    while True:
        try:
            system.locking(descriptor, system.LK_NBLCK, 1)
        except OSError as error:
            if not wait:
                os.close(descriptor)
                raise BlockingIOError(error.errno, error.strerror, place) from error
            time.sleep(_AGAIN_SECONDS)
        else:
            return descriptor
