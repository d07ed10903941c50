"""The text of a `ProblemFamily`: a signature with an `Extent` in place of some numbers. For example::

    conv2d-n?-i64x?x?-o64x?x?-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32
    conv2d-n1-i3xh%32xw%32[32:4096]-o16x?x?-k3x3-s2x2-d1x1-psame_upper-g1-NXC-XIO-f32-bias-relu
    backprop2d-n?-i64x?x?-o32x?x?-k3x3-s2x2-d1x1-p1x1_1x1+1x1-g1-NXC-XIO-f32

``?`` is any extent, a name stands for one extent wherever it occurs, ``%32`` is a multiple of 32, ``[32:4096]`` a range.
Pads are ``begin_end``, for a transposed convolution with ``+output_padding``; ``same_upper`` or ``same_lower``; or ``?``: each call's own.
"""

from __future__ import annotations

import re

from .errors import InvalidProblemError, SignatureError
from .family import Extent, ProblemFamily
from .signature import FIELDS, OPS_BY_PREFIX, PREFIXES, format_integers, join, match_fields, split

_EXAMPLE = "conv2d-n?-i64x?x?-o64x?x?-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32"
# Name, pattern and example of fields that may have free numbers, by their first letters.
_FREE = {
    "n": (r"n([^x]+)", "n1 or n?"),
    "i": (r"i([0-9]+(?:x[^x]+)+)", "i64x?x?"),
    "o": (r"o([0-9]+(?:x(?:[0-9]+|\?))+)", "o64x?x?"),
    "p": (r"p(\?|same_upper|same_lower|[0-9x]+_[0-9x]+(?:\+[0-9x]+)?)", "p1x1_1x1, psame_upper or p?"),
}
_FIELDS = tuple((meaning, *_FREE.get(pattern[0], (pattern, example))) for meaning, pattern, example in FIELDS)
_PADS = re.compile(r"([0-9]+(?:x[0-9]+)*)_([0-9]+(?:x[0-9]+)*)(?:\+([0-9]+(?:x[0-9]+)*))?")


def is_family(signature: str) -> bool:
    """Return whether a text, which is a Problem's or a family's, is a family's."""
    return any(re.fullmatch(r"[a-z][0-9x_]*", field) is None for field in signature.split("-")[1:8])


def format_family(family: ProblemFamily) -> str:
    """Return the text of a family."""
    f = family
    pads = f.pads if isinstance(f.pads, str) else "_".join(map(join, f.pads))
    fields = (
        f"{PREFIXES[f.op]}{f.rank}d",
        f"n{f.batch}",
        f"i{join((f.in_channels, *f.in_spatial))}",
        f"o{join((f.out_channels, *_outputs(f)))}",
        f"k{join(f.kernel)}",
        f"s{join(f.strides)}",
        f"d{join(f.dilations)}",
        f"p{pads}" + (f"+{join(f.output_padding)}" if any(f.output_padding) else ""),
        f"g{f.groups}",
        f.data_format,
        f.filter_format,
        f.dtype,
        *format_integers(f),
        *map(str, f.epilogue),
    )
    return "-".join(fields)


def parse_family(text: str) -> ProblemFamily:
    """Return the family that `text` names.

    Raises
    ------
    SignatureError
        If `text` does not have the form of a family's text, or describes no valid problem.
    """
    groups, named, epilogue = match_fields(text, _FIELDS, _EXAMPLE)
    op, rank, batch, inputs, outputs, kernel, strides, dilations, pads, group_count, *formats = groups
    in_channels, *in_spatial = inputs.split("x")
    out_channels, *out_spatial = outputs.split("x")
    if not len(in_spatial) == len(out_spatial) == int(rank):
        raise SignatureError(
            f"{text!r} says {rank}d, but i{inputs} and o{outputs} have other numbers of spatial extents"
        )
    numbers = _PADS.fullmatch(pads)
    try:
        family = ProblemFamily(
            OPS_BY_PREFIX[op],
            Extent.parse(batch),
            int(in_channels),
            tuple(map(Extent.parse, in_spatial)),
            int(out_channels),
            split(kernel),
            split(strides),
            split(dilations),
            (split(numbers[1]), split(numbers[2])) if numbers else pads,
            int(group_count),
            formats[0],
            formats[1],
            formats[2],
            named["bias"],
            epilogue,
            split(numbers[3]) if numbers and numbers[3] else (),
            named["zero_point"],
            named["filter_zero_point"],
            named["bias_dtype"],
        )
    except InvalidProblemError as error:
        raise SignatureError(f"{text!r} is not a valid family: {error}") from error
    expected = _outputs(family)
    if out_spatial != expected:
        raise SignatureError(f"{text!r} says o{outputs}; the other fields give o{join((out_channels, *expected))}")
    return family


def _outputs(family: ProblemFamily) -> list[str]:
    each = zip(family.in_spatial, family.typical.out_spatial, strict=True)
    return ["?" if extent.is_free or family.pads == "?" else str(outputs) for extent, outputs in each]
