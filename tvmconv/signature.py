"""The signature: a Problem as one line of text, which parses back to the same Problem.

Registries, tuning logs and the files of bundles use signatures as keys. For example::

    conv2d-n1-i64x56x56-o64x56x56-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32-bias

In order: operation and spatial rank (``conv`` or ``backprop``), batch, input channels x spatial
extents, output channels x spatial extents, kernel taps, strides, dilations, pads begin ``_`` end,
groups, data format, filter format, type, then optional tails, each present only if it differs from
its default: the zero points of data and filter (``zx128``, ``zw3``), ``bias`` or ``bias_f32``, and the epilogue's steps.
New fields become new tails, so old keys stay valid.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from .dtypes import QUANTIZED
from .epilogue import Step, parse_epilogue
from .errors import InvalidProblemError, SignatureError
from .problem import DATA_FORMATS, DTYPES, FILTER_FORMATS, Op, Problem

PREFIXES: dict[Op, str] = {"convolution": "conv", "convolution_backprop_data": "backprop"}
OPS_BY_PREFIX = {prefix: op for op, prefix in PREFIXES.items()}
_EXAMPLE = "conv2d-n1-i64x56x56-o64x56x56-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32-bias"
_NUMBER = r"(?:0|[1-9][0-9]*)"
_NUMBERS = rf"({_NUMBER}(?:x{_NUMBER})*)"
# Fields in order, each with its meaning, pattern and an example; tails follow.
FIELDS = (
    (
        "the operation and its spatial rank",
        rf"({'|'.join(OPS_BY_PREFIX)})([123])d",
        "conv2d or backprop2d (1d, 2d, 3d)",
    ),
    ("the batch", f"n({_NUMBER})", "n1"),
    ("the input's channels and spatial extents", f"i{_NUMBERS}", "i64x56x56"),
    ("the output's channels and spatial extents", f"o{_NUMBERS}", "o64x56x56"),
    ("the filter's taps", f"k{_NUMBERS}", "k3x3"),
    ("the strides", f"s{_NUMBERS}", "s1x1"),
    ("the dilations", f"d{_NUMBERS}", "d1x1"),
    ("the pads at the begin and the end", f"p{_NUMBERS}_{_NUMBERS}", "p1x1_1x1"),
    ("the groups", f"g({_NUMBER})", "g1"),
    ("the data format", f"({'|'.join(DATA_FORMATS)})", " or ".join(DATA_FORMATS)),
    ("the filter format", f"({'|'.join(FILTER_FORMATS)})", " or ".join(FILTER_FORMATS)),
    ("the type", f"({'|'.join((*DTYPES, *QUANTIZED))})", f"{' or '.join(DTYPES)}, or u8s8u8"),
)
# The optional parts before an epilogue.
_TAILS = re.compile(r"(?:zx(-?[1-9][0-9]*)(?:-|$))?(?:zw(-?[1-9][0-9]*)(?:-|$))?(?:(bias)(?:_(f32))?(?:-|$))?")
# Signatures of valid problems are shorter, and int() refuses numbers of thousands of digits.
_MAX_LENGTH = 512


def format_integers(problem: Any) -> Iterator[str]:
    """Yield the texts of the zero points and the bias of a problem or a family."""
    if problem.zero_point:
        yield f"zx{problem.zero_point}"
    if problem.filter_zero_point:
        yield f"zw{problem.filter_zero_point}"
    if problem.bias:
        yield "bias_f32" if problem.bias_dtype == "f32" else "bias"


def format_signature(problem: Problem) -> str:
    """Return the signature of `problem`.

    Raises
    ------
    InvalidProblemError
        If `problem` is no Problem.
    """
    p = problem
    if not isinstance(p, Problem):
        raise InvalidProblemError(f"problem is {p!r:.80}, a {type(p).__name__}; it must be a tvmconv.Problem")
    fields = (
        f"{PREFIXES[p.op]}{p.rank}d",
        f"n{p.batch}",
        f"i{join((p.in_channels, *p.in_spatial))}",
        f"o{join((p.out_channels, *p.out_spatial))}",
        f"k{join(p.kernel)}",
        f"s{join(p.strides)}",
        f"d{join(p.dilations)}",
        f"p{join(p.pads_begin)}_{join(p.pads_end)}",
        f"g{p.groups}",
        p.data_format,
        p.filter_format,
        p.dtype,
        *format_integers(p),
        *map(str, p.epilogue),
    )
    return "-".join(fields)


def parse_signature(text: str) -> Problem:
    """Return the Problem that `text` names.

    Raises
    ------
    SignatureError
        If `text` does not have the form of a signature, or its numbers contradict each other.
    """
    groups, named, epilogue = match_fields(text)
    op, rank, batch, inputs, outputs, kernel, strides, dilations, begin, end, group_count, *formats = groups
    in_channels, *in_spatial = split(inputs)
    out_channels, *out_spatial = split(outputs)
    if len(in_spatial) != int(rank):
        raise SignatureError(f"{text!r} says {rank}d, but i{inputs} has {len(in_spatial)} spatial extents")
    try:
        return Problem(
            op=OPS_BY_PREFIX[op],
            batch=int(batch),
            in_channels=in_channels,
            in_spatial=tuple(in_spatial),
            out_channels=out_channels,
            out_spatial=tuple(out_spatial),
            kernel=split(kernel),
            strides=split(strides),
            dilations=split(dilations),
            pads_begin=split(begin),
            pads_end=split(end),
            groups=int(group_count),
            data_format=formats[0],
            filter_format=formats[1],
            dtype=formats[2],
            epilogue=epilogue,
            **named,
        )
    except InvalidProblemError as error:
        raise SignatureError(f"{text!r} is not a valid problem: {error}") from error


def match_fields(
    text: str, fields: Sequence[tuple[str, str, str]] = FIELDS, whole: str = _EXAMPLE
) -> tuple[list[str], dict[str, Any], tuple[Step, ...]]:
    """Return the groups that the fields' patterns match in a text, the rest as fields of a Problem, and its epilogue.

    Parameters
    ----------
    fields
        Meaning, pattern and example of each field.
    whole
        Example of a whole text, for messages.

    Raises
    ------
    SignatureError
        If the text does not match.
    """
    if not isinstance(text, str):
        raise SignatureError(f"{text!r} is a {type(text).__name__}, not a signature; one is a string like {whole}")
    if len(text) > _MAX_LENGTH:
        raise SignatureError(f"{text[:80]!r}... has {len(text)} characters; a signature has at most {_MAX_LENGTH}")
    parts = text.split("-")
    groups: list[str] = []
    for position, (meaning, pattern, example) in enumerate(fields, 1):
        part = parts[position - 1] if position <= len(parts) else None
        match = re.fullmatch(pattern, part) if part is not None else None
        if match is None:
            given = "is missing" if part is None else f"is {part!r}"
            raise SignatureError(
                f"{text!r} is not a signature: field {position}, {meaning}, {given}; it must look like {example}. "
                f"A whole one: {whole}"
            )
        groups += match.groups()
    tails = "-".join(parts[len(fields) :])
    found = _TAILS.match(tails)
    assert found is not None  # the pattern also matches an empty text
    zero_point, filter_zero_point, bias, bias_dtype = found.groups()
    try:
        epilogue = parse_epilogue(tails[found.end() :] or None)
        if text.endswith("-"):
            parse_epilogue("")
    except InvalidProblemError as error:
        raise SignatureError(f"{text!r} ends in {tails or '-'!r}; allowed are bias and an epilogue: {error}") from error
    zeros = {"zero_point": int(zero_point or 0), "filter_zero_point": int(filter_zero_point or 0)}
    return groups, {**zeros, "bias": bias is not None, "bias_dtype": bias_dtype or ""}, epilogue


def join(values: Sequence[object]) -> str:
    """Return numbers as in signatures, joined by x."""
    return "x".join(map(str, values))


def split(text: str) -> tuple[int, ...]:
    """Return the numbers of a text that :func:`join` returned."""
    return tuple(int(part) for part in text.split("x"))
