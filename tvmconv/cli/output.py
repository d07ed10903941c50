"""Tables and JSON on stdout, a progress bar on stderr.

The tables are plain aligned columns, so that a listing needs no package beyond the run-time half and a
long signature is never wrapped or cut.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from math import isfinite
from pathlib import Path
from typing import Any

from ..errors import TvmconvError
from ..runtime.bundle import EMULATED, Bundle
from ..support.files import check_file
from ..support.progress import Progress

# Words of tables for an entry's `verified`.
VERIFIED = {True: "yes", EMULATED: "emulated", False: "wrong", None: "never"}

# Least growth of weights that is reported: rounding up to whole vectors alone stays below it.
GROWN = 1.05


def check_output(path: Path, *sources: str, mapped: bool = False) -> None:
    """Check, before minutes are spent, that a file can be written.

    Parameters
    ----------
    path
        What ``--output`` names.
    sources
        Files that the command reads, none of which the output may replace.
    mapped
        Whether it is a library.

    Raises
    ------
    TvmconvError
        If the path names something other than a file, as for `check_file`, or one of `sources`; or its folder is missing or
        read-only.
    """
    if path.is_file() and any(os.path.exists(each) and path.samefile(each) for each in sources):
        raise TvmconvError(f"--output {path} is a file that this command reads; name another")
    streamed = check_file(path, "--output", mapped=mapped)
    folder = path.absolute().parent
    if not folder.is_dir():
        raise TvmconvError(f"--output {path}: there is no folder {folder}; make it first")
    if not (streamed or os.access(folder, os.W_OK | os.X_OK)):
        raise TvmconvError(f"--output {path}: the folder {folder} is read-only for this user; name another")


def growth(now: int, before: int, switch: str) -> str:
    """Return a note on weights that transforms made larger than the model's, with the option that avoids it; else nothing."""
    if before <= 0 or now <= GROWN * before:
        return ""
    return f" ({now / before:.2f} times the model's, for speed; not with {switch})"


def warn_untimed(bundle: Bundle) -> None:
    """Print how many kernels of a bundle were not timed, as they are for free extents."""
    if count := len(bundle.families):
        print(f"not timed: {count} kernel{'s' * (count > 1)} for free extents", file=sys.stderr)


def print_json(value: object) -> None:
    """Print `value` as strict JSON, in which numbers that are not finite are null."""
    print(json.dumps(_finite(value), indent=2, allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print `rows` under `header`, two spaces between columns; numbers are aligned right.

    Control characters, such as a line break in a node's name, are printed as escapes.
    """
    rows = [
        ["".join(each if each.isprintable() else repr(each)[1:-1] for each in cell) for cell in row] for row in rows
    ]
    columns = list(zip(header, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    numeric = [bool(rows) and all(_is_number(cell) for cell in column[1:]) for column in columns]
    for row in (header, *rows):
        cells = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        )
        print("  ".join(cells).rstrip())


def _is_number(cell: str) -> bool:
    return cell in ("", "-") or cell.replace(".", "", 1).isdigit()


@contextmanager
def progress_bar(verb: str) -> Iterator[Progress]:
    """Yield ``report(done, total, what)``, which draws a bar with the time left on stderr.

    It draws nothing when stderr is no terminal, or `rich` is not installed.
    """
    if not sys.stderr.isatty() or find_spec("rich") is None:
        yield lambda done, total, what: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar
    from rich.table import Column

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        # Text without room is cut here, not in the columns before.
        TextColumn("{task.fields[what]}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
    )
    with Bar(*columns, console=Console(stderr=True), expand=True, transient=True) as bar:
        task = bar.add_task(verb, total=None, what="")

        def report(done: int, total: int, what: str) -> None:
            bar.update(task, completed=done, total=total, what=what)

        yield report
