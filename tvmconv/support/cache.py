"""Files by a key, kept from one process to the next: `$TVMCONV_CACHE`, or `tvmconv` in the user's folder of caches.

What lies there is loaded and run. So the folder is this user's own or the system's, nobody else may write to it, and a file is
read only if it has the digest that it was written with. Processes share it: a file is written whole, under another name first. A
cache that cannot be written to, such as one that a container's image brings along, is read alone.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..errors import TvmconvWarning
from .files import write_whole

VARIABLE = "TVMCONV_CACHE"
# Files beyond that go: some thousands of kernels.
MOST_BYTES = 2 << 30
_DIGEST = hashlib.sha256().digest_size


@dataclass(frozen=True)
class CachedFile:
    """A file of the cache: its key, its bytes, and when it was read last, in seconds since 1970."""

    key: str
    bytes: int
    read: float


@dataclass(frozen=True)
class Cache:
    """A folder of files by their keys, hexadecimal digits."""

    folder: Path

    def read(self, key: str) -> bytes | None:
        """Return what was written for a key; None if there is nothing, or, with a warning, if it is damaged."""
        path = self._path(key)
        try:
            content = path.read_bytes()
        except OSError:
            return None
        digest, content = content[:_DIGEST], content[_DIGEST:]
        if hashlib.sha256(content).digest() != digest:
            warnings.warn(f"{path} is damaged: it is left out, and made again", TvmconvWarning, stacklevel=2)
            with suppress(OSError):
                path.unlink()
            return None
        with suppress(OSError):  # of another owner
            os.utime(path)
        return content

    def write(self, key: str, content: bytes) -> None:
        """Keep the content for a key, if the folder can be written to."""
        path = self._path(key)
        with suppress(OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(path, hashlib.sha256(content).digest() + content)

    def files(self) -> list[CachedFile]:
        """Return the files, those that were read last first."""
        return sorted(self._files(), key=lambda each: -each.read)

    def trim(self, most: int = MOST_BYTES) -> None:
        """Remove files until no more than so many bytes are left: first those whose bytes nobody read for the longest time.

        A large file counts as much as all the small ones in its place: networks go before the kernels that they have.
        """
        total, now = 0, time.time()
        for each in sorted(self._files(), key=lambda each: each.bytes * (now - each.read)):
            total += each.bytes
            if total > most:
                with suppress(OSError):
                    self._path(each.key).unlink()

    def clear(self) -> int:
        """Remove all files; return how many there were."""
        files = self.files()
        for each in files:
            self._path(each.key).unlink(missing_ok=True)
        return len(files)

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / key[2:]

    def _files(self) -> Iterator[CachedFile]:
        for path in self.folder.glob("??/*"):
            with suppress(OSError):  # removed by another process
                status = path.stat()
                if stat.S_ISREG(status.st_mode):
                    yield CachedFile(path.parent.name + path.name, status.st_size, status.st_mtime)


def place() -> Path | None:
    """Return where the cache is to lie; None: nowhere, as the user says or has no home."""
    given = os.environ.get(VARIABLE)
    if given is not None:
        return Path(given).absolute() if given else None
    home = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(home):  # the convention says to ignore another
        return Path(home) / "tvmconv"
    try:
        return Path.home().absolute() / ".cache/tvmconv"
    except RuntimeError:
        return None


def open_cache() -> Cache | None:
    """Return the user's cache; None, with a warning, if it cannot be made or is not safe, and without if there is to be none."""
    folder = place()
    if folder is None:
        return None
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError as error:
        why = f"cannot be made: {error.strerror}"
    else:
        if not stat.S_ISDIR(status.st_mode):
            why = "is no folder"
        elif sys.platform == "win32":  # a user's folders are the user's, and modes say nothing
            return Cache(folder)
        elif status.st_uid not in (os.getuid(), 0):
            why = "belongs to another user, and what lies in it would be run"
        elif status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            why = f"may be written to by others, and what lies in it would be run: chmod go-w {folder}"
        else:
            return Cache(folder)
    warnings.warn(
        f"the cache {folder} {why}; nothing is cached ({VARIABLE}= leaves it out)", TvmconvWarning, stacklevel=2
    )
    return None
