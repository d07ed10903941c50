"""Files of JSON lines that several processes append to, and that survive a crash in the middle of a line."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import TvmconvWarning
from .files import whole_file

if TYPE_CHECKING:
    from filelock import FileLock

T = TypeVar("T")


def append(path: Path, *values: object) -> None:
    """Append each of `values` as a line, which survives any end of this process.

    There is no fsync: on a busy machine it took 4 to 13 ms, where a candidate is measured in 30. A line that an earlier
    process left unfinished stays a separate line.
    """
    lines = "".join(map(_line, values)).encode()
    with lock(path), path.open("ab+") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                lines = b"\n" + lines
        file.write(lines)


def read(path: Path, parse: Callable[[Any], T]) -> tuple[list[T], list[str]]:
    """Read a file; an absent one has no lines.

    Parameters
    ----------
    parse
        Converts a line's JSON value; raises ValueError with the reason if it is invalid.

    Returns
    -------
    list, list of str
        Results of `parse`, and the malformed lines: each also causes a warning with file and line.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return [], []
    values, malformed = [], []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            values.append(parse(json.loads(line)))
        except ValueError as error:  # json.JSONDecodeError is one
            warnings.warn(f"{path}, line {number} is ignored: {error}", TvmconvWarning, stacklevel=2)
            malformed.append(line)
    return values, malformed


def write(path: Path, values: Iterable[object], malformed: Iterable[str]) -> None:
    """Replace the file, whole or not at all, by `values`, one a line, and its previous `malformed` lines (somebody's data).

    The caller holds the file's :func:`lock`.
    """
    with whole_file(path) as part, part.open("w", encoding="utf-8") as file:
        file.writelines(map(_line, values))
        file.writelines(line + "\n" for line in malformed)
        file.flush()
        os.fsync(file.fileno())


def lock(path: Path) -> FileLock:
    """Return the lock, to be used as a context, that excludes other writers of the files beside `path`."""
    from filelock import FileLock  # comes with tvmconv[compile]; reading needs no lock

    path.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(path.parent / ".lock")


def _line(value: object) -> str:
    return json.dumps(value) + "\n"
