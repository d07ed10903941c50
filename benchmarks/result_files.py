"""Results as JSON files."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

from tvmconv.errors import SourceError
from tvmconv.support.files import write_whole

T = TypeVar("T")


def write_result(result: Any, path: Path) -> None:
    """Write a result, a dataclass, to `path` as JSON, whole or not at all."""
    write_whole(path, (json.dumps(asdict(result), indent=1) + "\n").encode())


def read_file(path: Path, parse: Callable[[Any], T], command: str) -> T:
    """Return the result in a file that `command` wrote.

    Parameters
    ----------
    parse
        Takes the file's JSON value; raises ValueError, TypeError or KeyError if it is not what it should be.

    Raises
    ------
    SourceError
        If there is no such file, or it holds none.
    """
    try:
        return parse(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, TypeError, KeyError) as error:
        raise SourceError(f"{path} is no result of {command}: {error!r}") from error


def resume(path: Path, result: T, read: Callable[[Path], T]) -> T:
    """Return `result`, a dataclass, with the rows of the file at `path`, if there is one.

    Raises
    ------
    SourceError
        If the file is something else, or was measured otherwise.
    """
    if not path.exists():
        return result
    there: Any = read(path)
    was, now = asdict(replace(there, rows=())), asdict(result)  # type: ignore[call-overload]
    for name, value in now.items():
        if was[name] != value:
            raise SourceError(
                f"{path} was measured with {name} {was[name]}, which is {value} now: give another file, or remove it"
            )
    return there
