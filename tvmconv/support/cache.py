"""Cache of files by key, shared by processes: `$TVMCONV_CACHE`, or `tvmconv` in the user's cache folder.

Its content is loaded and run. So the folder must be this user's own or root's, writable by nobody else, and a file is read only if
it has the digest that it was written with. Each file is written under another name first and then renamed. A cache that cannot be
written to, such as one in a container's image, is only read.
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
# Limit of the cache's size: some thousands of kernels.
MOST_BYTES = 2 << 30
# Fraction of it that the files of one key may take.
_MOST_SHARE = 4
# Seconds in which every file is written: what is older was left by a dead process.
_LONGEST_WRITE = 3600
_DIGEST = hashlib.sha256().digest_size


@dataclass(frozen=True)
class CachedFile:
    """File of the cache: its key, its size in bytes, and when it was last read, in seconds since 1970."""

    key: str
    bytes: int
    read: float


@dataclass(frozen=True)
class Cache:
    """Folder of files named by their keys, hexadecimal digits."""

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
        """Return a key's facts about files, and their contents; None as for :meth:`read`."""
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
        """Write files and facts about them for a key, if they are a small part of the cache's limit."""
        sizes = [path.stat().st_size for path in files]
        if sum(sizes) <= MOST_BYTES // _MOST_SHARE:
            head = json.dumps({"told": told, "sizes": sizes}).encode()
            self._write(key, [head, b"\n", *(path.read_bytes() for path in files)])
            self.trim()

    def _write(self, key: str, parts: Sequence[bytes]) -> None:
        """Write a file of the digest of some parts, and the parts."""
        path, digest = self._path(key), hashlib.sha256()
        for part in parts:
            digest.update(part)
        with suppress(OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with whole_file(path) as named, named.open("wb") as file:
                file.writelines([digest.digest(), *parts])

    def files(self) -> list[CachedFile]:
        """Return the files, the most recently read first."""
        return sorted(self._files(), key=lambda each: -each.read)

    def trim(self, most: int = MOST_BYTES) -> None:
        """Remove files until at most `most` bytes are left, first those with the greatest product of size and age.

        So networks go before their kernels.
        """
        total, now = 0, time.time()
        for each in sorted(self._files(), key=lambda each: each.bytes * (now - each.read)):
            total += each.bytes
            if total > most:
                with suppress(OSError):
                    self._path(each.key).unlink()
        for left in self.folder.glob(f"??/{LEFT}*"):  # left by a process that died while writing
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
    """Return the user's cache; None if it is disabled, or, with a warning, if it cannot be made or is not safe."""
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
        elif sys.platform == "win32":  # modes do not show who may write; users' folders are their own
            return Cache(folder)
        elif status.st_uid not in (os.getuid(), 0):
            why = "belongs to another user, and its content would be run"
        elif status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            why = f"may be written to by others, and its content would be run: chmod go-w {folder}"
        else:
            return Cache(folder)
    warnings.warn(
        f"the cache {folder} {why}; nothing is cached ({VARIABLE}= disables the cache)", TvmconvWarning, stacklevel=2
    )
    return None
