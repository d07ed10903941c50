"""The C file of a family's kernel in an exported library."""

from __future__ import annotations

from collections.abc import Iterable

from ..family import ProblemFamily
from .plan import Function
from .sources import SLOTS, argument_rows, externs_of, public_functions, variant_rows

_RULES = {"same_upper": "UPPER", "same_lower": "LOWER", "?": "OWN"}


def family_source(function: Function) -> str:
    """Return the C file of a family's kernel; it is linked with the objects of its variants."""
    family, problem = function.family, function.problem
    assert family is not None
    names = list(problem.operands)
    spans = [d * (k - 1) + 1 for k, d in zip(family.kernel, family.dilations, strict=True)]
    begin, end = ((0,) * family.rank,) * 2 if isinstance(family.pads, str) else family.pads
    ends = [pad - extra for pad, extra in zip(end, family.output_padding, strict=True)]
    return f"""\
/* {function.signature} */
#include "tvmconv-families.h"

{SLOTS}
{externs_of(function.variants)}
{argument_rows(problem.arrays)}
{variant_rows(function.variants)}
static const struct extent extents[] = {{{", ".join(_extents(family))}}};
static const int64_t strides[] = {_row(family.strides)}, spans[] = {_row(spans)};
static const int64_t pads_begin[] = {_row(begin)}, pads_end[] = {_row(ends)};
static const struct family family = {{
    {{{len(names)}, arguments, {len(function.variants)}, variants, NULL, 0}},
    {family.rank}, {int(family.data_format == "NXC")}, {int(family.op != "convolution")},
    {names.index("residual") if "residual" in names else 0}, extents, strides, spans,
    {_RULES[family.pads] if isinstance(family.pads, str) else "FIXED"}, pads_begin, pads_end}};

#define KERNEL (&family.kernel)

int NAME_{function.name}_output_extents(const int64_t *given, int64_t *output) {{ return NAME_rt_output_extents(&family, given, output); }}
{public_functions(function)}"""


def _extents(family: ProblemFamily) -> Iterable[str]:
    """Yield the initializers of batch and spatial extents."""
    all_of_them = (family.batch, *family.in_spatial)
    first: dict[str, int] = {}
    for number, each in enumerate(all_of_them):
        same = first.setdefault(each.name, number) if each.name else number
        yield f"{{{each.low}, {each.high}, {each.multiple}, {same}}}"


def _row(numbers: Iterable[int]) -> str:
    return f"{{{', '.join(map(str, numbers))}}}"
