"""Files that are written whole or not at all, and errors of full disks."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import InputError

# Beginning of the names of folders that a killed process may leave beside its file.
LEFT = ".part-"
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)


def check_file(path: Path, name: str = "path", *, mapped: bool = False) -> bool:
    """Check that a file can replace the one at `path`, before minutes are spent.

    Parameters
    ----------
    name
        The caller's word for the path, for messages.
    mapped
        Whether the file is a library, which cannot be written to a pipe or a device.

    Returns
    -------
    bool
        Whether `path` is written to instead of replaced, as a pipe or a deleted file is.

    Raises
    ------
    InputError
        If the path is a folder, a disk or a socket; or, for a `mapped` file, a pipe or a device.
    OSError
        If the system cannot tell, as with circular links.
    """
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return False
    if stat.S_ISREG(there.st_mode):  # a deleted file, as /proc/self/fd names it, cannot be replaced
        place = os.path.realpath(path)
        return not (os.path.exists(place) and os.path.samestat(there, os.stat(place)))
    if not mapped and (stat.S_ISFIFO(there.st_mode) or stat.S_ISCHR(there.st_mode)):
        return True
    kind = next(kind for is_kind, kind in _KINDS if is_kind(there.st_mode))
    file = "a file in it" if kind == "a folder" else "a file"
    raise InputError(f"{name} {path} is {kind}; give the name of {file}, a new or an existing one")


@contextmanager
def whole_file(path: Path, *, mapped: bool = False) -> Iterator[Path]:
    """Yield the name of a file to write, in a temporary folder, which replaces `path` at the end.

    If the block raises nothing, the file is renamed in one step; it takes the mode of the previous file and, where the
    system allows, its owner. Links are followed. A pipe or a device is written to.

    Raises
    ------
    InputError, OSError
        As :func:`check_file`, or if the folder of `path` cannot be written to; what was there before stays.
    """
    streamed = check_file(path, mapped=mapped)
    place = Path(os.path.realpath(path))
    try:
        folder = tempfile.mkdtemp(prefix=LEFT, dir=None if streamed else place.parent)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    try:
        part = Path(folder) / "part"
        yield part
        if streamed:
            with part.open("rb") as content, path.open("wb") as stream:
                shutil.copyfileobj(content, stream)
            return
        with suppress(FileNotFoundError):
            _like(part, place.stat())
        os.replace(part, place)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write_whole(path: Path, content: bytes | memoryview) -> None:
    """Write a file of some content as :func:`whole_file` does, with its errors."""
    with whole_file(path) as part:
        part.write_bytes(content)


def _like(part: Path, there: os.stat_result) -> None:
    """Give a file the owner, as far as this user may, and the mode of another."""
    with suppress(PermissionError, AttributeError):  # Windows has other owners
        os.chown(part, there.st_uid, there.st_gid)
    part.chmod(there.st_mode & 0o777)


def check_full(error: Exception, folder: object) -> None:
    """Raise OSError if `error`, from a compiler or linker that writes to `folder`, reports a full disk.

    Raises
    ------
    OSError
        If it says so.
    """
    for number in (errno.ENOSPC, errno.EDQUOT):
        if os.strerror(number) in str(error):
            raise OSError(number, f"{os.strerror(number)}, in {folder} or where temporary files are") from error
