"""Check documents of JSON: one description for manifests, tuning records and trials.

A kind, such as `text`, `unsigned` or ``table({...})``, is called with a value and returns its plain form, or raises a
SchemaError that names the wrong member by its path: ``entries[3].packed_filter.bytes is -1; it must be ...``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_NAME = re.compile(r"[A-Za-z_][\w-]*", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
_LONGEST = 80  # characters of a value in a message
_MISSING = object()


class SchemaError(ValueError):
    """Value of a wrong kind, or a missing one, with its path."""

    def __init__(self, needed: str, value: object = _MISSING) -> None:
        self.path = ""
        self._needed, self._value = needed, value

    def within(self, step: str | int) -> SchemaError:
        """Return the error with its path extended by the member `step` of a table or list."""
        if isinstance(step, int):
            step = f"[{step}]"
        elif not _NAME.fullmatch(step):
            step = f"[{step!r}]"
        self.path = step + ("." if self.path and self.path[0] != "[" else "") + self.path
        return self

    def __str__(self) -> str:
        is_what = "is missing" if self._value is _MISSING else f"is {_short(self._value)}"
        return f"{self.path or 'it'} {is_what}; it must be {self._needed}"


@dataclass(frozen=True)
class Kind:
    """Kind of values: its description, and the function that checks them."""

    words: str
    check: Callable[[Any], Any]

    def __call__(self, value: object) -> Any:
        """Return the value in its plain form.

        Raises
        ------
        SchemaError
            If it is of another kind.
        """
        return self.check(value)


def kind(words: str, holds: Callable[[Any], bool]) -> Kind:
    """Return the kind of values for which `holds` is true."""

    def check(value: Any) -> Any:
        if not holds(value):
            raise SchemaError(words, value)
        return value

    return Kind(words, check)


def _is_number(value: object) -> bool:
    # Not NaN, infinite, or an integer beyond floating-point numbers, which `math.isfinite` refuses.
    return type(value) in (int, float) and abs(value) <= sys.float_info.max  # type: ignore[arg-type]


text = kind("a text that is not empty", lambda value: isinstance(value, str) and value != "")
words = kind("a text", lambda value: isinstance(value, str))
boolean = kind("true or false", lambda value: isinstance(value, bool))
integer = kind("a whole number", lambda value: type(value) is int)
unsigned = kind("a whole number of at least 0", lambda value: type(value) is int and value >= 0)
number = kind("a number of at least 0", lambda value: _is_number(value) and value >= 0)
sha256 = kind("64 hexadecimal digits", lambda value: isinstance(value, str) and _SHA256.fullmatch(value) is not None)
positive = kind("a number above 0", lambda value: _is_number(value) and value > 0)


def one_of(*allowed: str) -> Kind:
    """Return the kind of some texts."""
    return kind(" or ".join(allowed), lambda value: isinstance(value, str) and value in allowed)


def optional(inner: Kind) -> Kind:
    """Return the kind of null and of the values of `inner`."""
    words = f"null or {inner.words}"

    def check(value: Any) -> Any:
        try:
            return None if value is None else inner.check(value)
        except SchemaError as error:
            raise error if error.path else SchemaError(words, value) from None

    return Kind(words, check)


def list_of(inner: Kind) -> Kind:
    """Return the kind of lists; their plain form is a tuple."""

    def check(value: Any) -> Any:
        if not isinstance(value, list):
            raise SchemaError("a list", value)
        return tuple(_member(inner, position, item) for position, item in enumerate(value))

    return Kind("a list", check)


def map_of(inner: Kind) -> Kind:
    """Return the kind of tables with any names."""

    def check(value: Any) -> Any:
        if not isinstance(value, dict):
            raise SchemaError("a table", value)
        return {name: _member(inner, name, member) for name, member in value.items()}

    return Kind("a table", check)


def table(fields: Mapping[str, Kind], absent: Mapping[str, Any] | None = None) -> Kind:
    """Return the kind of tables with these fields; other fields, of a later version, are dropped.

    Parameters
    ----------
    absent
        Values of fields that earlier versions did not write.
    """
    words = f"a table with {', '.join(fields)}"
    absent = absent or {}

    def check(value: Any) -> Any:
        if not isinstance(value, dict):
            raise SchemaError(words, value)
        checked = {}
        for name, inner in fields.items():
            if name in value:
                checked[name] = _member(inner, name, value[name])
            elif name in absent:
                checked[name] = absent[name]
            else:
                raise SchemaError(inner.words).within(name)
        return checked

    return Kind(words, check)


def _member(inner: Kind, step: str | int, value: object) -> Any:
    try:
        return inner.check(value)
    except SchemaError as error:
        raise error.within(step) from None


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= _LONGEST else shown[:_LONGEST] + "..."
