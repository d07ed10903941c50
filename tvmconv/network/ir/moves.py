"""Operators that only move elements: reshapes and transpositions."""

from __future__ import annotations

from typing import Any

RESHAPES = ("relax.reshape", "relax.expand_dims", "relax.squeeze", "relax.flatten")


def name_of(value: Any) -> str:
    """Return the name of a call's operator; an empty text for other values."""
    return getattr(getattr(value, "op", None), "name", "")


def order_of(value: Any) -> list[int] | None:
    """Return the axes of a transposition; None for other values."""
    if name_of(value) != "relax.permute_dims":
        return None
    if value.attrs.axes is None:
        return list(range(value.args[0].ty.ndim))[::-1]
    return [int(axis) % len(value.attrs.axes) for axis in value.attrs.axes]
