"""The rows of the cost model (`tvmconv.targets.costs`): their files, and the choice of a CPU's row."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import cache
from importlib.resources import files
from math import log2
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from ..errors import TargetError, TvmconvError, TvmconvWarning
from ..support.files import write_whole
from ..support.folders import lock
from ..support.user import user_folder
from .costs import Amx, Costs, Elements, Lanes, Lines, Points, StepCosts, Structures

T = TypeVar("T")


def costs_of(
    mcpu: str, core: tuple[int, int, int], l2: int, l3: int, features: Iterable[str] = (), own: Costs | None = None
) -> Costs:
    """Return the coefficients of an LLVM CPU, or those of the nearest row.

    Parameters
    ----------
    core
        As `Costs.core`, of the CPU without the features that are disabled.
    l2, l3
        Bytes of the CPU's caches.
    features
        Features that code uses: only rows with AMX have the costs of tiles.
    own
        A row calibrated on this machine, in place of the one called `mcpu`.
    """
    rows = {**all_rows(), **({mcpu: own} if own else {})}
    return rows[nearest(rows, mcpu, core, l2, l3, features)]


def nearest(
    rows: Mapping[str, Costs], mcpu: str, core: tuple[int, int, int], l2: int, l3: int, features: Iterable[str] = ()
) -> str:
    """Return the name of the nearest row, for the parameters of `costs_of`."""
    amx = "amx_tile" in features

    def distance(name: str, row: Costs) -> tuple[float, ...]:
        bits, registers, multiply_adds = row.core
        caches = abs(log2(row.l2 / l2)) + abs(log2(row.l3 / l3)) / 2
        other = (amx and row.amx is None, registers != core[1], bits != core[0], abs(log2(multiply_adds / core[2])))
        return (*map(float, other), float(name != mcpu), caches)

    return min(rows, key=lambda name: distance(name, rows[name]))


@cache
def all_rows() -> dict[str, Costs]:
    """Return the rows that ship, by LLVM's names of CPUs."""
    return rows_in(files(__package__).joinpath("costs.json").read_text(), "costs.json")


def user_rows() -> dict[str, Costs]:
    """Return the rows that `tvmconv calibrate` kept for this user, by names of targets.

    If their file cannot be read, there are none, and a warning says so.

    Raises
    ------
    TargetError
        If the file is damaged.
    """
    try:
        path = _kept_at()
    except TvmconvError:  # a user without a home has kept nothing
        return {}
    try:
        return _rows_at(path)
    except OSError as error:
        warnings.warn(
            f"the measurement of tvmconv calibrate is not used: {path}: {error.strerror}", TvmconvWarning, stacklevel=2
        )
        return {}


def keep(name: str, row: Costs) -> Path:
    """Write a row to this user's file; return the file."""
    path = _kept_at()
    path.parent.mkdir(parents=True, exist_ok=True)
    with lock(path.parent):
        write_whole(path, row_text({**_rows_at(path), name: row}).encode())
    return path


def forget(name: str) -> Path:
    """Remove a row from this user's file, or the file if it is damaged; return the file."""
    path = _kept_at()
    if not path.is_file():
        return path
    with lock(path.parent):
        try:
            rows = _rows_at(path)
        except TargetError:
            rows = {}
        rows.pop(name, None)
        if rows:
            write_whole(path, row_text(rows).encode())
        else:
            path.unlink(missing_ok=True)
    return path


def _kept_at() -> Path:
    return user_folder() / "costs.json"


def _rows_at(path: Path) -> dict[str, Costs]:
    try:
        return rows_in(path.read_text("utf-8", "replace"), str(path))
    except (FileNotFoundError, NotADirectoryError):
        return {}


def rows_in(text: str, where: str) -> dict[str, Costs]:
    """Return the rows of a file.

    Raises
    ------
    TargetError
        If the text is no table of rows, or a row lacks a coefficient or has an unknown one.
    """
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        raise TargetError(f"{where} is not JSON: {error}; remove it, or run tvmconv calibrate again") from error
    if not isinstance(values, dict):
        raise TargetError(f"{where} is not a table of rows by name; remove it, or run tvmconv calibrate again")
    return {name: from_json(Costs, row, f"{where}, {name}") for name, row in values.items()}


def from_json(kind: type[T], values: Any, where: str) -> T:
    """Return the dataclass `kind` of JSON's `values`; TargetError if a field is missing, unknown, or of another type."""
    hints = get_type_hints(kind)
    if not isinstance(values, dict) or (unknown := sorted(values.keys() - hints.keys())):
        what = f"knows no {unknown[0]}" if isinstance(values, dict) else f"is {values!r}, not a row"
        raise TargetError(f"{where} {what}; allowed: {', '.join(hints)}")
    found: dict[str, Any] = {}
    for name, value in values.items():
        found[name] = _value(hints[name], value, f"{where}, {name}")
    try:
        return kind(**found)
    except TypeError as error:
        raise TargetError(f"{where}: {error}; give every coefficient") from None


def _value(hint: Any, value: Any, where: str) -> Any:
    of = [each for each in (StepCosts, Lanes, Elements, Lines, Points, Structures, Amx) if hint in (each, each | None)]
    if of:
        return None if value is None else from_json(of[0], value, where)
    if hint == frozenset[str] and isinstance(value, list) and all(isinstance(each, str) for each in value):
        return frozenset(value)
    # Sizes are integers, of which logarithms are taken.
    if (
        hint in (int, float)
        and isinstance(value, (int, hint))
        and not isinstance(value, bool)
        and value >= (hint is int)
    ):
        return hint(value)
    if (hint is str and isinstance(value, str)) or (hint == Mapping[str, float] | None and isinstance(value, dict)):
        return value
    raise TargetError(
        f"{where} is {value!r}; allowed: {getattr(hint, '__name__', hint)}, {'above 0' if hint is int else 'not negative'}"
    )


def row_text(rows: Mapping[str, Costs]) -> str:
    """Return rows as the text of a file that `rows_in` reads."""
    return json.dumps({name: _plain(row) for name, row in rows.items()}, indent=1) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, frozenset):
        return sorted(value)
    if not hasattr(value, "__dataclass_fields__"):
        return dict(value) if isinstance(value, Mapping) else value
    defaults = {each.name: each.default for each in fields(value)}
    return {name: _plain(getattr(value, name)) for name, default in defaults.items() if getattr(value, name) != default}
