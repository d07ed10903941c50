"""Checks of problems with integers: zero points, the step that rounds, sums of 32 bits."""

from __future__ import annotations

from typing import Any

from .checks import LARGEST, choice, integer
from .dtypes import ROWS, Types, is_integer
from .epilogue import QUANTIZERS, format_epilogue
from .errors import InvalidProblemError

BIAS_DTYPES = ("s32", "f32")


def check_types(problem: Any, types: Types) -> dict[str, object]:
    """Check the types of a Problem and the fields that depend on them; return the canonical values of these fields.

    Raises
    ------
    InvalidProblemError
        If a zero point is out of its type's range, or bias, epilogue and output types are incompatible.
    """
    canonical: dict[str, object] = {}
    for name, dtype in (("zero_point", types.data), ("filter_zero_point", types.filter)):
        canonical[name] = _zero_point(name, getattr(problem, name), dtype)
    given, integers = problem.bias_dtype, is_integer(types.data)
    choice("bias_dtype", given, ("", *BIAS_DTYPES))
    if given and not integers:
        raise InvalidProblemError(f"bias_dtype is {given!r}; a bias of {problem.dtype} has that type")
    canonical["bias_dtype"] = (given or "s32") if integers and problem.bias else ""
    steps = problem.epilogue
    last = steps[-1] if steps and steps[-1].name in QUANTIZERS else None
    if (last is not None) != (types.output in ("u8", "s8")):
        wanted = "must end in q(scale,zero_point)" if last is None else "must not round to integers of 8 bits"
        raise InvalidProblemError(
            f"epilogue is {format_epilogue(steps)!r}; an epilogue of a problem whose output is {types.output} {wanted}"
        )
    if last is not None:
        _zero_point("the zero point of the epilogue's last step", int(last.numbers[1]), types.output)
    if types.output == "s32" and (steps or canonical["bias_dtype"] == "f32"):
        raise InvalidProblemError(
            "an output of s32 is the sums and a bias of s32: it has no epilogue and no other bias"
        )
    return canonical


def check_sums(types: Types, products: int, largest: int) -> None:
    """Raise InvalidProblemError if a sum of so many products, and one more of the largest, may overflow 32 bits."""
    most = (2**31 - 1) // largest - 1
    if products > most:
        raise InvalidProblemError(
            f"each output sums {products} products of {types.data} and {types.filter}, which may pass 32 bits; at most"
            f" {most} are supported: split the input channels, and add both outputs"
        )


def largest_numbers(types: Types, *zero_points: int) -> tuple[int, int]:
    """Return the largest magnitudes of data and filter minus their zero points; 0 for floating-point types."""
    ranges = (ROWS[dtype].range or (0, 0) for dtype in types[:2])
    data, filter_ = (max(zero - least, most - zero) for (least, most), zero in zip(ranges, zero_points, strict=True))
    return data, filter_


def _zero_point(name: str, value: object, dtype: str) -> int:
    """Return a zero point as an int; raise InvalidProblemError if it is out of its type's range."""
    bounds = ROWS[dtype].range
    number = integer(name, value, -LARGEST)
    if bounds is None and number:
        raise InvalidProblemError(f"{name} is {number}; numbers of {dtype} have none")
    if bounds is not None and not bounds[0] <= number <= bounds[1]:
        raise InvalidProblemError(f"{name} is {number}; numbers of {dtype} are {bounds[0]} to {bounds[1]}")
    return number
