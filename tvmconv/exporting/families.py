"""The C file of a family's kernel in an exported library."""

from __future__ import annotations

from collections.abc import Iterable

from ..dtypes import ROWS
from ..family import ProblemFamily
from ..problem import Problem
from .header import parameters
from .plan import FamilyFunction
from .sources import SLOTS, argument_rows, externs_of, variant_rows

_RULES = {"same_upper": "UPPER", "same_lower": "LOWER", "?": "OWN"}


def family_source(function: FamilyFunction) -> str:
    """Return the C file of a family's kernel, which is linked with the objects of its variants."""
    family, name = function.family, f"NAME_{function.name}"
    problem = family.typical
    names = list(problem.operands)
    plain, packed = parameters(problem, names), parameters(problem, names, packed=True)
    given = ", ".join([*names, "output"])
    given_packed = ", ".join(["packed" if each == "filter" else each for each in names] + ["output"])
    spans = [d * (k - 1) + 1 for k, d in zip(family.kernel, family.dilations, strict=True)]
    begin, end = ((0,) * family.rank,) * 2 if isinstance(family.pads, str) else family.pads
    ends = [pad - extra for pad, extra in zip(end, family.output_padding, strict=True)]
    return f"""\
/* {function.signature} */
#include "tvmconv-families.h"

{SLOTS}
{externs_of(function.variants)}
{argument_rows(_operands(problem))}
{variant_rows(function.variants)}
static const struct extent extents[] = {{{", ".join(_extents(family))}}};
static const int64_t strides[] = {_row(family.strides)}, spans[] = {_row(spans)};
static const int64_t pads_begin[] = {_row(begin)}, pads_end[] = {_row(ends)};
static const struct family family = {{
    {{{len(names)}, arguments, {len(function.variants)}, variants, NULL, 0}},
    {family.rank}, {int(family.data_format == "NXC")}, {int(family.op != "convolution")},
    {names.index("residual") if "residual" in names else 0}, extents, strides, spans,
    {_RULES[family.pads] if isinstance(family.pads, str) else "FIXED"}, pads_begin, pads_end}};

int {name}_output_extents(const int64_t *given, int64_t *output) {{ return NAME_rt_output_extents(&family, given, output); }}
int {name}_with(const NAME_call *call, const int64_t *given, {plain}) {{
  const void *const arrays[] = {{{given}}};
  return NAME_rt_run_family(&family, PLAIN, call, given, arrays);
}}
int {name}_packed_with(const NAME_call *call, const int64_t *given, {packed}) {{
  const void *const arrays[] = {{{given_packed}}};
  return NAME_rt_run_family(&family, PACKED, call, given, arrays);
}}
int {name}(const int64_t *given, {plain}) {{ return {name}_with(NULL, given, {given}); }}
int {name}_packed(const int64_t *given, {packed}) {{ return {name}_packed_with(NULL, given, {given_packed}); }}
int {name}_pack(const {ROWS[problem.dtype].c} *filter, void *packed) {{ return NAME_rt_pack(&family.kernel, filter, packed); }}
size_t {name}_packed_bytes(void) {{ return NAME_rt_packed_bytes(&family.kernel); }}
size_t {name}_workspace_bytes(int threads) {{ return NAME_rt_workspace_bytes(&family.kernel, PLAIN, threads); }}
size_t {name}_packed_workspace_bytes(int threads) {{ return NAME_rt_workspace_bytes(&family.kernel, PACKED, threads); }}
"""


def _operands(problem: Problem) -> dict[str, tuple[tuple[int, ...], str]]:
    return {**problem.operands, "output": (problem.output_shape, problem.dtype)}


def _extents(family: ProblemFamily) -> Iterable[str]:
    """Yield the initializers of batch and spatial extents."""
    all_of_them = (family.batch, *family.in_spatial)
    first: dict[str, int] = {}
    for number, each in enumerate(all_of_them):
        same = first.setdefault(each.name, number) if each.name else number
        yield f"{{{each.low}, {each.high}, {each.multiple}, {same}}}"


def _row(numbers: Iterable[int]) -> str:
    return f"{{{', '.join(map(str, numbers))}}}"
