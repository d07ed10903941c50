"""A file that is written whole or not at all, and disks that are full."""

from __future__ import annotations

import errno
import os
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Write a file, or replace it, whole or not at all.

    Raises
    ------
    OSError
        If it cannot be written; what was there before stays.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(content)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def check_full(error: Exception, folder: object) -> None:
    """Raise OSError if `error`, of what writes to `folder`, says that the disk is full, as compilers and linkers do.

    Raises
    ------
    OSError
        If it says so.
    """
    for number in (errno.ENOSPC, errno.EDQUOT):
        if os.strerror(number) in str(error):
            raise OSError(number, f"{os.strerror(number)}, in {folder} or where temporary files are") from error
