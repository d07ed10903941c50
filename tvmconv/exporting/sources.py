"""The C sources of an exported library: one file for each kernel, and the tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from ..dtypes import DTYPE_BYTES, ROWS
from ..isa import Isa
from ..runtime.arrays import KERNEL_TYPES
from ..runtime.kernel_object import Workspace
from ..runtime.packed import PACK_SYMBOL, PACKED_SYMBOL
from .header import join_rows, parameters
from .plan import Function, FunctionVariant, Plan

# DLPack's type codes by NumPy's kinds; bf16 is passed as its bits.
_CODES = {"i": 0, "u": 1, "f": 2}
PLAIN = "tvmconv_kernel"
# Pointers through which the kernels' objects call the run time.
SLOTS = """\
int (*__TVMBackendParallelLaunch)(int (*)(int, void *, void *), void *, int) = NAME_rt_launch;
int (*__TVMBackendParallelBarrier)(int, void *) = NAME_rt_barrier;
void *(*__TVMBackendAllocWorkspace)(int, int, uint64_t, int, int) = NAME_rt_allocate;
int (*__TVMBackendFreeWorkspace)(int, int, void *) = NAME_rt_release;
"""


def object_symbols(number: int) -> dict[str, str]:
    """Return the new names of a variant's entry points in the archive, by their names in its object."""
    return {f"__tvm_ffi_{name}": f"variant{number}_{name}" for name in (PLAIN, PACK_SYMBOL, PACKED_SYMBOL)}


def kernel_source(function: Function) -> str:
    """Return the C file of a kernel; it is linked with the objects of its variants."""
    problem, name = function.problem, f"NAME_{function.name}"
    operands = problem.arrays
    arrays = [
        f'{{"{each}", "{dtype}", {prod(shape)}, {DTYPE_BYTES[dtype] * prod(shape)}}}'
        for each, (shape, dtype) in operands.items()
    ]
    inputs = len(operands) - 1
    collect = "".join(f"  arrays[{i}] = inputs[{i}];\n" for i in range(inputs))
    return f"""\
/* {function.signature} */
#include "tvmconv-runtime.h"

{SLOTS}
{externs_of(function.variants)}
{argument_rows(operands)}
{variant_rows(function.variants)}
const struct kernel NAME_rt_kernel_{function.name} = {{{inputs}, arguments, {len(function.variants)}, variants, NULL, 0}};
#define KERNEL (&NAME_rt_kernel_{function.name})

{public_functions(function)}
static int run(const NAME_call *call, const void *const *inputs, void *output) {{
  const void *arrays[{inputs + 1}];
{collect}  arrays[{inputs}] = output;
  return NAME_rt_run(KERNEL, PLAIN, call, arrays);
}}
static int run_packed(const NAME_call *call, const void *const *inputs, void *output) {{
  const void *arrays[{inputs + 1}];
{collect}  arrays[{inputs}] = output;
  return NAME_rt_run(KERNEL, PACKED, call, arrays);
}}
static int pack(const void *filter, void *packed) {{ return NAME_rt_pack(KERNEL, filter, packed); }}
static const NAME_array described[] = {{
    {join_rows(arrays)}}};
const NAME_kernel NAME_rt_entry_{function.name} = {{
    "{function.name}", "{function.signature}", {inputs}, described, run, run_packed, pack,
    {name}_packed_bytes, {name}_workspace_bytes, {name}_packed_workspace_bytes}};
"""


def public_functions(function: Function) -> str:
    """Return the definitions of the public functions, for a file that defines `KERNEL`, and for a family `family`."""
    problem, name, names = function.problem, f"NAME_{function.name}", list(function.problem.operands)
    takes, gives, run = "", "", "run(KERNEL, {entry}, call, arrays)"
    if function.family is not None:
        takes, gives, run = "const int64_t *given, ", "given, ", "run_family(&family, {entry}, call, given, arrays)"
    lines = []
    for kind, entry, filter_ in (("", "PLAIN", "filter"), ("_packed", "PACKED", "packed")):
        typed = takes + parameters(problem, names, packed=entry == "PACKED")
        given = ", ".join([*(filter_ if each == "filter" else each for each in names), "output"])
        lines.append(f"""\
int {name}{kind}_with(const NAME_call *call, {typed}) {{
  const void *const arrays[] = {{{given}}};
  return NAME_rt_{run.format(entry=entry)};
}}
int {name}{kind}({typed}) {{ return {name}{kind}_with(NULL, {gives}{given}); }}
size_t {name}{kind}_workspace_bytes(int threads) {{ return NAME_rt_workspace_bytes(KERNEL, {entry}, threads); }}
""")
    return f"""\
{"".join(lines)}\
int {name}_pack(const {ROWS[problem.types.filter].c} *filter, void *packed) {{ return NAME_rt_pack(KERNEL, filter, packed); }}
size_t {name}_packed_bytes(void) {{ return NAME_rt_packed_bytes(KERNEL); }}
"""


def externs_of(variants: Sequence[FunctionVariant]) -> str:
    """Return the declarations of the variants' functions."""
    return "\n".join(
        f"extern function variant{number}_{symbol};"
        for number, each in enumerate(variants)
        for symbol in sorted(each.object.workspaces)
    )


def argument_rows(operands: Mapping[str, tuple[tuple[int, ...], str]]) -> str:
    """Return the definition of ``arguments``: shape and type of each operand."""
    shapes = [
        f"static const int64_t {each}_shape[] = {{{', '.join(map(str, shape))}}};"
        for each, (shape, _) in operands.items()
    ]
    rows = [
        _initializer(f"{each}_shape", prod(shape), len(shape), *_code(KERNEL_TYPES[dtype]))
        for each, (shape, dtype) in operands.items()
    ]
    return "\n".join([*shapes, f"static const struct argument arguments[] = {{\n    {join_rows(rows)}}};"])


def variant_rows(variants: Sequence[FunctionVariant]) -> str:
    """Return the definition of ``variants``."""
    shapes = [
        f"static const int64_t packed_shape{number}[] = {{{_packed_elements(each)}}};"
        for number, each in enumerate(variants)
        if each.entry.packed_filter
    ]
    rows = [_variant(number, each) for number, each in enumerate(variants)]
    return "\n".join([*shapes, f"static const struct variant variants[] = {{\n    {join_rows(rows)}}};"])


def _initializer(*values: object) -> str:
    return f"{{{', '.join(map(str, values))}}}"


def _code(dtype: np.dtype[Any]) -> tuple[int, int]:
    return _CODES[dtype.kind], 8 * dtype.itemsize


def _packed_elements(variant: FunctionVariant) -> int:
    layout = variant.entry.packed_filter
    assert layout is not None
    return int(layout["bytes"]) // np.dtype(layout["dtype"]).itemsize


def _variant(number: int, variant: FunctionVariant) -> str:
    """Return the initializer of a ``struct variant``."""
    layout, sizes = variant.entry.packed_filter, variant.object.workspaces
    name = f"variant{number}_"
    # A kernel with a packed layout has three functions; one that reads its filter in place has one.
    functions = [f"{name}{PLAIN}", *(f"{name}{each}" if layout else "NULL" for each in (PACK_SYMBOL, PACKED_SYMBOL))]
    none = Workspace(0, 0)
    workspaces = [sizes.get(each, none) for each in (PLAIN, PACK_SYMBOL, PACKED_SYMBOL)]
    packed = "{NULL, 0, 0, 0, 0}"
    if layout:
        packed = _initializer(f"packed_shape{number}", _packed_elements(variant), 1, *_code(np.dtype(layout["dtype"])))
    return f"{{{variant.target}, {', '.join(functions)}, {', '.join(f'{{{w.shared}, {w.task}}}' for w in workspaces)}, {packed}}}"


def table_source(plan: Plan) -> str:
    """Return the C file of the table of kernels."""
    externs = [f"extern const NAME_kernel NAME_rt_entry_{each.name};" for each in plan.functions]
    entries = [f"&NAME_rt_entry_{each.name}" for each in plan.functions]
    return f"""\
#include <string.h>

#include "tvmconv-runtime.h"

{chr(10).join(externs)}
const NAME_kernel *const NAME_kernels[] = {{
    {join_rows(entries)}}};
const int NAME_kernel_count = {len(entries)};

const NAME_kernel *NAME_find(const char *signature) {{
  for (int i = 0; signature != NULL && i < NAME_kernel_count; ++i)
    if (strcmp(NAME_kernels[i]->signature, signature) == 0) return NAME_kernels[i];
  return NULL;
}}
"""


def targets_header(plan: Plan) -> str:
    """Return an archive's ``tvmconv-targets.h``: its targets, and the sets of targets that its kernels have variants for."""
    tables = target_tables(plan.isa, {name: plan.bundle.targets[name].features for name in plan.targets})
    variants = [*(each.variants for each in plan.functions), *(each.variants for each in plan.families)]
    covers = sorted({sum(1 << each.target for each in some) for some in variants})
    return f"""\
{tables}\
const uint32_t NAME_rt_covers[] = {{{", ".join(f"{each:#x}" for each in covers)}}};
const int NAME_rt_covers_count = {len(covers)};
"""


def target_tables(isa: Isa, targets: Mapping[str, Sequence[str]]) -> str:
    """Return the C tables of targets, by name, with their CPU features, as ``tvmconv-detect.h`` reads them."""
    features, rows = [], []
    for number, (name, names) in enumerate(targets.items()):
        needed = isa.c_rows(names)
        found = join_rows(needed or ["{0}"])
        features.append(f"static const struct feature features{number}[] = {{ /* {name} */\n    {found}}};")
        rows.append(f"{{features{number}, {len(needed)}}}")
    return f"""\
{chr(10).join(features)}
static const struct {{
  const struct feature *features;
  int count;
}} targets[] = {{
    {join_rows(rows)}}};
enum {{ TARGETS = {len(rows)} }};
"""
