"""The signature: a Problem as one line of text, readable, parsed back exactly.

It keys the registry, the tuning logs and the files of a bundle. For example::

    conv2d-n1-i64x56x56-o64x56x56-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32-bias

In order: operation and spatial rank (``conv`` or ``backprop``), batch, input channels x spatial
extents, output channels x spatial extents, kernel taps, strides, dilations, pads begin ``_`` end,
groups, data format, filter format, type, then optional tails, each present only when it differs from
its default. New fields become new tails, so old keys stay valid.
"""

from __future__ import annotations

import re

from .errors import InvalidProblemError, SignatureError
from .problem import Problem

_PREFIX = {"convolution": "conv", "convolution_backprop_data": "backprop"}
_OP = {prefix: op for op, prefix in _PREFIX.items()}
_NUMBERS = r"\d+(?:x\d+)*"
_PATTERN = re.compile(
    rf"(?P<op>{'|'.join(_OP)})(?P<rank>[123])d"
    rf"-n(?P<n>\d+)-i(?P<i>{_NUMBERS})-o(?P<o>{_NUMBERS})-k(?P<k>{_NUMBERS})-s(?P<s>{_NUMBERS})-d(?P<d>{_NUMBERS})"
    rf"-p(?P<pb>{_NUMBERS})_(?P<pe>{_NUMBERS})-g(?P<g>\d+)"
    r"-(?P<data_format>[A-Z]+)-(?P<filter_format>[A-Z]+)-(?P<dtype>[a-z0-9]+)(?P<tails>(?:-[a-z0-9]+)*)",
    re.ASCII,
)
_EXAMPLE = "conv2d-n1-i64x56x56-o64x56x56-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32-bias"
_TAILS = ("bias",)
# No field of a valid problem has more digits, and int() refuses absurdly long ones.
_MAX_LENGTH = 512


def format_signature(problem: Problem) -> str:
    """Return the signature of `problem`."""
    p = problem
    fields = (
        f"{_PREFIX[p.op]}{p.rank}d",
        f"n{p.batch}",
        f"i{_join((p.in_channels, *p.in_spatial))}",
        f"o{_join((p.out_channels, *p.out_spatial))}",
        f"k{_join(p.kernel)}",
        f"s{_join(p.strides)}",
        f"d{_join(p.dilations)}",
        f"p{_join(p.pads_begin)}_{_join(p.pads_end)}",
        f"g{p.groups}",
        p.data_format,
        p.filter_format,
        p.dtype,
        *(("bias",) if p.bias else ()),
    )
    return "-".join(fields)


def parse_signature(text: str) -> Problem:
    """Return the Problem that `text` names.

    Raises
    ------
    SignatureError
        If `text` has not the form of a signature, or its numbers contradict each other.
    """
    match = _PATTERN.fullmatch(text) if isinstance(text, str) and len(text) <= _MAX_LENGTH else None
    if match is None:
        raise SignatureError(f"{text!r} is not a signature; one looks like {_EXAMPLE} (see: tvmconv sig --help)")
    tails = tuple(match["tails"].split("-")[1:])
    if len(set(tails)) != len(tails) or not set(tails) <= set(_TAILS):
        raise SignatureError(f"{text!r} ends in {'-'.join(tails)!r}; allowed tails: {', '.join(_TAILS)}")
    in_channels, *in_spatial = _split(match["i"])
    out_channels, *out_spatial = _split(match["o"])
    rank = int(match["rank"])
    if len(in_spatial) != rank:
        raise SignatureError(f"{text!r} says {rank}d, but i{match['i']} has {len(in_spatial)} spatial extents")
    try:
        return Problem(
            op=_OP[match["op"]],  # type: ignore[arg-type]
            batch=int(match["n"]),
            in_channels=in_channels,
            in_spatial=tuple(in_spatial),
            out_channels=out_channels,
            out_spatial=tuple(out_spatial),
            kernel=_split(match["k"]),
            strides=_split(match["s"]),
            dilations=_split(match["d"]),
            pads_begin=_split(match["pb"]),
            pads_end=_split(match["pe"]),
            groups=int(match["g"]),
            data_format=match["data_format"],
            filter_format=match["filter_format"],
            dtype=match["dtype"],
            bias="bias" in tails,
        )
    except InvalidProblemError as error:
        raise SignatureError(f"{text!r} is not a valid problem: {error}") from error


def _join(values: tuple[int, ...]) -> str:
    return "x".join(map(str, values))


def _split(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("x"))
