"""Files by a key, kept from one process to the next: `$TVMCONV_CACHE`, or `tvmconv` in the user's folder of caches.

What lies there is loaded and run. So the folder is this user's own or the system's, nobody else may write to it, and a file is
read only if it has the digest that it was written with. Processes share it: a file is written whole, under another name first. A
cache that cannot be written to, such as one that a container's image brings along, is read alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import TvmconvWarning
from .files import LEFT, whole_file

VARIABLE = "TVMCONV_CACHE"
# Files beyond that go: some thousands of kernels.
MOST_BYTES = 2 << 30
# Part of that which the files of one key may take.
_MOST_SHARE = 4
# Seconds that no file takes to be written.
_LONGEST_WRITE = 3600
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
        """Return a key's content; None if it is missing, or, with a warning, damaged."""
        path = self._path(key)
        try:
            with path.open("rb") as file:
                digest, content = file.read(_DIGEST), file.read()
        except OSError:
            return None
        if hashlib.sha256(content).digest() != digest:
            warnings.warn(f"{path} is damaged; it is ignored and written again", TvmconvWarning, stacklevel=2)
            with suppress(OSError):
                path.unlink()
            return None
        with suppress(OSError):  # of another owner
            os.utime(path)
        return content

    def write(self, key: str, content: bytes) -> None:
        """Keep the content for a key, if the folder can be written to."""
        self._write(key, [content])

    def read_files(self, key: str) -> tuple[dict[str, Any], list[memoryview]] | None:
        """Return a key's note on files, and their contents; None as for :meth:`read`."""
        content = self.read(key)
        if content is None:
            return None
        end = content.index(b"\n")
        head, rest, files = json.loads(content[:end]), memoryview(content)[end + 1 :], []
        for size in head["sizes"]:
            files.append(rest[:size])
            rest = rest[size:]
        return head["told"], files

    def write_files(self, key: str, told: Mapping[str, Any], files: Sequence[Path]) -> None:
        """Write files and a note on them for a key, if they are a small part of the cache's limit."""
        sizes = [path.stat().st_size for path in files]
        if sum(sizes) <= MOST_BYTES // _MOST_SHARE:
            head = json.dumps({"told": told, "sizes": sizes}).encode()
            self._write(key, [head, b"\n", *(path.read_bytes() for path in files)])
            self.trim()

    def _write(self, key: str, parts: Sequence[bytes]) -> None:
        """Write a file of some parts behind their digest."""
        path, digest = self._path(key), hashlib.sha256()
        for part in parts:
            digest.update(part)
        with suppress(OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with whole_file(path) as named, named.open("wb") as file:
                file.writelines([digest.digest(), *parts])

    def files(self) -> list[CachedFile]:
        """Return the files, those that were read last first."""
        return sorted(self._files(), key=lambda each: -each.read)

    def trim(self, most: int = MOST_BYTES) -> None:
        """Remove files until at most so many bytes are left, the least recently read first.

        A large file counts as much as all the small ones in its place: networks go before the kernels that they have.
        """
        total, now = 0, time.time()
        for each in sorted(self._files(), key=lambda each: each.bytes * (now - each.read)):
            total += each.bytes
            if total > most:
                with suppress(OSError):
                    self._path(each.key).unlink()
        for left in self.folder.glob(f"??/{LEFT}*"):  # by a process that died while it wrote
            with suppress(OSError):
                if now - left.stat().st_mtime > _LONGEST_WRITE:
                    shutil.rmtree(left)

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
    """Return the cache's folder; None if the user disables it or has no home."""
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
        f"the cache {folder} {why}; nothing is cached ({VARIABLE}= disables the cache)", TvmconvWarning, stacklevel=2
    )
    return None
