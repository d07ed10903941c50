"""Folders that are replaced whole or not at all."""

from __future__ import annotations

import ctypes
import errno
import glob
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import BundleError
from .locks import lock_folder

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
# Parts of the names of temporary folders, which a killed process may leave behind.
_BUILDING, _REPLACED = "building", "replaced"


def follow_link(place: Path) -> Path:
    """Return the folder that a link at `place` leads to; `place` itself if it is no link."""
    return Path(os.path.realpath(place)) if place.is_symlink() and place.is_dir() else place


def check_replaceable(place: Path, mark: str, what: str) -> bool:
    """Return whether `place` holds a folder with the file `mark`; refuse anything but such a folder, an empty one, or a link to one."""
    place = follow_link(place)
    is_folder = place.is_dir() and not place.is_symlink()
    if is_folder and (place / mark).is_file():
        return True
    if (place.exists() or place.is_symlink()) and not (is_folder and not any(place.iterdir())):
        raise BundleError(
            f"{place} exists and is not {what}, so it will not be replaced; give another path or remove it"
        )
    return False


@contextmanager
def staging(place: Path) -> Iterator[Path]:
    """Yield an empty temporary folder beside `place`, which is removed at the end if it is still there.

    Leftovers of killed processes beside `place` are removed first.

    Raises
    ------
    OSError
        If it cannot be made, for instance because the parent of `place` does not exist.
    """
    with lock(place.parent):
        _remove_left_over(place)
        folder = Path(tempfile.mkdtemp(prefix=_prefix(place, _BUILDING), dir=place.parent))
        descriptor = lock_folder(folder)  # while this process lives, others leave the folder alone
    try:
        # mkdtemp makes it private; a bundle is as readable as any other folder.
        folder.chmod(0o777 & ~_umask())
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def _remove_left_over(place: Path) -> None:
    """Remove the leftovers of dead processes beside `place`, whose folder the caller has locked."""
    for folder in place.parent.glob(glob.escape(_prefix(place, _REPLACED)) + "*"):
        if place.exists():
            shutil.rmtree(folder, ignore_errors=True)
        else:  # killed between two renames
            os.rename(folder, place)
    for folder in place.parent.glob(glob.escape(_prefix(place, _BUILDING)) + "*"):
        try:
            descriptor = lock_folder(folder, wait=False)
        except BlockingIOError:  # its builder lives
            continue
        try:
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(descriptor)


def _prefix(place: Path, what: str) -> str:
    return f".{place.name}.tvmconv-{what}-"


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Hold an exclusive lock on `folder` among the processes that ask for it here."""
    descriptor = lock_folder(folder)
    try:
        yield
    finally:
        os.close(descriptor)


def move_into_place(new: Path, place: Path) -> None:
    """Rename the folder `new` to `place`, and remove the old content of `place`.

    Where the file system can exchange two names, `place` is the old or the new folder at every moment. The caller holds
    the lock of the parent folder.
    """
    if not place.exists():
        os.rename(new, place)
        return
    try:
        _exchange(new, place)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS):
            raise
        aside = Path(tempfile.mkdtemp(prefix=_prefix(place, _REPLACED), dir=place.parent))
        os.rename(place, aside)
        os.rename(new, place)
        new = aside
    shutil.rmtree(new)


def link_or_copy(source: Path, copy: Path) -> None:
    """Make `copy` a hard link to the file `source`, or a copy where the file system has no hard links."""
    try:
        os.link(source, copy)
    except OSError:
        shutil.copyfile(source, copy)


def _exchange(one: Path, other: Path) -> None:
    if sys.platform != "linux":
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), str(other))
    renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    if renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(other))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
