"""TOML files of problems.

One table for each convolution, with the operation's shapes and attributes, as far as they differ from the
defaults; or the signature alone::

    [[convolution]]
    data_shape = [1, 56, 56, 64]
    filter_shape = [3, 3, 64, 64]
    strides = [1, 1]
    dilations = [1, 1]
    auto_pad = "same_upper"
    bias = true

    [[convolution_backprop_data]]
    signature = "backprop2d-n1-i64x8x8-o32x16x16-k4x4-s2x2-d1x1-p1x1_1x1-g1-NXC-XIO-f32"
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from .. import ops
from ..errors import InvalidProblemError, SignatureError, SourceError, missing_extra
from ..problem import OPS, Problem
from ..signature import parse_signature

_REQUIRED = ("data_shape", "filter_shape", "strides", "dilations")
_OPTIONAL = (
    "pads_begin",
    "pads_end",
    "auto_pad",
    "groups",
    "data_format",
    "filter_format",
    "weights_format",
    "same_rule",
    "dtype",
    "bias",
    "epilogue",
    "signature",
)
_KEYS = {
    "convolution": (*_REQUIRED, *_OPTIONAL),
    "convolution_backprop_data": (*_REQUIRED, "output_shape", "output_padding", *_OPTIONAL),
}


def read_toml(content: bytes, source: str) -> Iterator[tuple[str, Problem]]:
    """Yield each problem of a TOML file with its place.

    Raises
    ------
    SourceError
        If it is not TOML, or a table is not a valid problem; the message names the table.
    """
    for op, tables in _parse(content, source).items():
        if op not in OPS:
            raise SourceError(f"{source}: {_unknown(op, OPS)}")
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            raise SourceError(f"{source}: {op} is not a list of tables; write [[{op}]] above each problem")
        for number, table in enumerate(tables, 1):
            place = f"{op} {number}"
            try:
                yield place, _problem(op, table)
            except (InvalidProblemError, SignatureError) as error:
                raise SourceError(f"{source}: {place}: {error}") from error


def _parse(content: bytes, source: str) -> Mapping[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        try:
            import tomli as tomllib
        except ImportError:
            raise missing_extra("compile", "tomli") from None
    try:
        return tomllib.loads(content.decode())
    except UnicodeDecodeError as error:
        raise SourceError(f"{source} is not a text file: byte {error.start} is not UTF-8") from None
    except ValueError as error:
        raise SourceError(f"{source} is not TOML: {error}") from None
    except RecursionError:
        raise SourceError(f"{source} is not a file of problems: its values are nested too deeply") from None


def _problem(op: str, table: Mapping[str, Any]) -> Problem:
    for key in table:
        if key not in _KEYS[op]:
            raise InvalidProblemError(_unknown(key, _KEYS[op]))
    if "signature" in table:
        if len(table) > 1:
            raise InvalidProblemError(
                f"signature stands alone; remove {', '.join(key for key in table if key != 'signature')}"
            )
        problem = parse_signature(table["signature"])
        if problem.op != op:
            raise InvalidProblemError(f"the signature is of a {problem.op}; write it under [[{problem.op}]]")
        return problem
    for key in _REQUIRED:
        if key not in table:
            raise InvalidProblemError(f"{key} is missing; needed are {', '.join(_REQUIRED)} (or signature alone)")
    attributes = dict(table)
    if "weights_format" in attributes:
        if "filter_format" in attributes:
            raise InvalidProblemError("filter_format and weights_format are one attribute; give one of them")
        attributes["filter_format"] = attributes.pop("weights_format")
    bias = attributes.pop("bias", False)
    if not isinstance(bias, bool):
        raise InvalidProblemError(f"bias is {bias!r}; it must be true or false")
    data_shape, filter_shape = attributes.pop("data_shape"), attributes.pop("filter_shape")
    resolve = ops.convolution if op == "convolution" else ops.convolution_backprop_data
    return resolve(data_shape, filter_shape, **attributes).with_(bias=bias)


def _unknown(key: str, allowed: tuple[str, ...]) -> str:
    close = get_close_matches(key, allowed, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    return f"{key!r} is unknown; {hint}allowed: {', '.join(allowed)}"
