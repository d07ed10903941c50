"""Names of the functions of an exported library."""

from __future__ import annotations

import hashlib
import re

from ..errors import InputError
from ..family import ProblemFamily
from ..family_text import format_family
from ..problem import Problem
from ..signature import format_signature

_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)
_LONGEST_NAME = 64
# File systems, and readers, have no room for more.
_LONGEST_TENSOR = 80


def check_name(name: object) -> str:
    """Return `name` if it is valid for a library; raise InputError if it is no identifier of C."""
    if not isinstance(name, str) or not _IDENTIFIER.fullmatch(name) or len(name) > _LONGEST_NAME:
        raise InputError(
            f"name is {name!r}; it must be a C identifier, the prefix of all functions and files: a letter, then up to"
            f" {_LONGEST_NAME - 1} letters, digits and underscores; give one with --name"
        )
    return name


def library_name(bundle: str) -> str:
    """Return the default name of a library: its bundle's, with other characters than letters and digits replaced."""
    stem = bundle.removesuffix(".bundle")
    return check_name(re.sub(r"[^A-Za-z0-9]+", "_", stem, flags=re.ASCII).strip("_"))


def kernel_name(problem: Problem) -> str:
    """Return a short name of a problem, without the attributes that have their usual values.

    ``conv2d_64x56x56_128_3x3_s2`` has batch 1, f32, data NXC with the filter XIO, no dilation, one group, and half of the filter
    as padding on each side.
    """
    p = problem
    usual = tuple((k - 1) * d // 2 for k, d in zip(p.kernel, p.dilations, strict=True))
    filter_format = "XIO" if p.data_format == "NXC" else "OIX"
    if p.op == "convolution":
        padded = zip(p.in_spatial, usual, p.kernel, p.dilations, p.strides, strict=True)
        extents = tuple((x + 2 * u - d * (k - 1) - 1) // s + 1 for x, u, k, d, s in padded)
        prefix = "conv"
    else:
        extents = tuple(x * s for x, s in zip(p.in_spatial, p.strides, strict=True))
        prefix = "backprop"
    parts = [
        f"{prefix}{p.rank}d",
        f"n{p.batch}" if p.batch != 1 else "",
        _join((p.in_channels, *p.in_spatial)),
        str(p.out_channels),
        _join(p.kernel),
        "s" + _sizes(p.strides) if set(p.strides) != {1} else "",
        "d" + _sizes(p.dilations) if set(p.dilations) != {1} else "",
        f"p{_sizes(p.pads_begin)}" if p.pads_begin != usual else "",
        f"o{_join(p.out_spatial)}" if p.out_spatial != extents else "",
        f"g{p.groups}" if p.groups != 1 else "",
        p.data_format.lower() if p.data_format != "NXC" else "",
        p.filter_format.lower() if p.filter_format != filter_format else "",
        p.dtype if p.dtype != "f32" else "",
        "bias" if p.bias else "",
        *(step.name for step in p.epilogue),
        digest(format_signature(p)) if any(step.numbers for step in p.epilogue) else "",
    ]
    return "_".join(filter(None, parts))


def family_name(family: ProblemFamily) -> str:
    """Return a short name of a family: channels and taps, and a few digits of a hash."""
    kept = (str(family.in_channels), str(family.out_channels), _join(family.kernel))
    kind = "conv" if family.op == "convolution" else "backprop"
    return "_".join(["any", f"{kind}{family.rank}d", *kept, digest(format_family(family))])


def tensor_name(tensor: str) -> str:
    """Return an identifier for a model's tensor: ``model_0_conv_Conv`` for ``/model.0/conv/Conv``."""
    name = re.sub(r"[^A-Za-z0-9]+", "_", tensor, flags=re.ASCII).strip("_") or "tensor"
    return name if len(name) <= _LONGEST_TENSOR else f"{name[:_LONGEST_TENSOR].rstrip('_')}_{digest(tensor)}"


def digest(text: str) -> str:
    """Return eight hexadecimal digits of a text's SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _join(values: tuple[int, ...]) -> str:
    return "x".join(map(str, values))


def _sizes(values: tuple[int, ...]) -> str:
    """Return the number that all axes share, else the number of each axis."""
    return str(values[0]) if len(set(values)) == 1 else _join(values)
