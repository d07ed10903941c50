"""The C tables of a provider: its kernels' problems as numbers, to be matched with nodes of a graph; its decisions and networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from ..dtypes import ROWS
from ..epilogue import STEPS
from ..problem import Problem
from .header import join_rows, quote
from .network_header import extents_in
from .network_part import ENTRIES, PREFIX

if TYPE_CHECKING:
    from .network_part import NetworkPart
    from .plan import Plan

# Types in ONNX's TensorProto.DataType.
_TENSOR_TYPES = {
    **{"float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "bool": 9, "float16": 10},
    **{"float64": 11, "uint32": 12, "uint64": 13, "bfloat16": 16},
}
# Nodes that a provider claims of a graph: none; each convolution with its epilogue; or the whole graph or its largest parts, as
# compiled networks.
NETWORK = "network"
CLAIMS = ("nothing", "convolutions", NETWORK)
_MOST_STEPS = 12
_AXES = ("in_spatial", "out_spatial", "kernel", "strides", "dilations", "pads_begin", "pads_end")


def is_served(problem: Problem) -> bool:
    """Return whether a provider can call a kernel of this problem."""
    return (problem.data_format, problem.filter_format) == ("NCX", "OIX") and len(problem.epilogue) <= _MOST_STEPS


def tables_source(
    plan: Plan, decisions: Mapping[int, str], networks: Mapping[int, Sequence[NetworkPart]] | None = None
) -> str:
    """Return the C file of the tables.

    Parameters
    ----------
    plan
        The library's plan; `is_served` holds of each of its problems.
    decisions
        By the hash of a graph, which of `CLAIMS` the provider claims of it.
    networks
        Networks by the identity of their graph, each for a target of the plan; their functions have the names of `network_symbols`.
    """
    problems = [_problem(each.problem) for each in plan.functions]
    decided = [f"{{{graph}u, {CLAIMS.index(claims)}}}" for graph, claims in sorted(decisions.items())] or ["{0, 0}"]
    return f"""\
#include <math.h>

#include "tvmconv-whole.h"

const struct problem NAME_rt_problems[] = {{
    {join_rows(problems)}}};
const struct decision NAME_rt_decisions[] = {{
    {join_rows(decided)}}};
const int NAME_rt_decision_count = {len(decisions)};
{_networks(plan, networks or {})}"""


def network_symbols(number: int) -> dict[str, str]:
    """Return the new names of a network's functions, by their names in its object."""
    return {name: f"tvmconv_network{number}{name.removeprefix(PREFIX)}" for name in ENTRIES}


def _networks(plan: Plan, networks: Mapping[int, Sequence[NetworkPart]]) -> str:
    lines, rows = [], []
    for number, (graph, part) in enumerate((graph, each) for graph, parts in networks.items() for each in parts):
        extents, tensors = extents_in(part), []
        places = {each.name: -1 - at for at, each in enumerate(extents)}
        for at, each in enumerate((*part.description["inputs"], *part.description["outputs"])):
            shape = [places.get(size, -1) if isinstance(size, str) else size for size in each["shape"]]
            lines.append(f"static const int64_t dims{number}_{at}[] = {{{', '.join(map(str, shape)) or 0}}};")
            tensors.append(
                f"{{{quote(each['name'])}, {_TENSOR_TYPES[each['dtype']]}, {len(shape)}, dims{number}_{at}}}"
            )
        functions = [
            network_symbols(number)[f"{PREFIX}_{each}"] for each in ("open", "close", "measure", "with_threads")
        ]
        lines.append(f"static const struct tensor tensors{number}[] = {{\n    {join_rows(tensors or ['{0}'])}}};")
        named = [f"{{{quote(each.name)}, {each.low}, {each.high}, {each.multiple}}}" for each in extents]
        lines.append(f"static const struct extent extents{number}[] = {{{', '.join(named) or '{0}'}}};")
        lines.append(f"network_function {', '.join(functions)};")
        target = plan.targets.index(part.description["target"])
        counts = f"{len(part.description['inputs'])}, {len(part.description['outputs'])}"
        arena = part.description["arena_bytes"]
        free = f"{len(extents)}, extents{number}"
        rows.append(f"{{{graph}u, {target}, {counts}, tensors{number}, {arena}u, {', '.join(functions)}, {free}}}")
    lines.append(f"const struct network NAME_rt_networks[] = {{\n    {join_rows(rows)}}};")
    lines.append(f"const int NAME_rt_network_count = {len(rows)};")
    return "\n".join((*lines, ""))


def defines(plan: Plan, version: str) -> tuple[str, ...]:
    """Return the compiler's flags that define the provider's version and targets."""
    return (f"-DTVMCONV_VERSION={quote(version)}", f"-DTVMCONV_TARGETS={quote(', '.join(plan.targets))}")


def _problem(problem: Problem) -> str:
    numbers = (
        problem.op != "convolution",
        problem.rank,
        ROWS[problem.dtype].onnx,
        problem.bias,
        problem.batch,
        problem.in_channels,
        problem.out_channels,
        problem.groups,
    )
    axes = [f"{{{', '.join(map(str, getattr(problem, name)))}}}" for name in _AXES]
    steps = ", ".join(_step(each.name, each.numbers) for each in problem.epilogue) or "{SCALE, 0, 0}"
    return f"{{{', '.join(str(int(n)) for n in numbers)}, {', '.join(axes)}, {len(problem.epilogue)}, {{{steps}}}}}"


def _step(name: str, numbers: tuple[float, ...]) -> str:
    if name == "relu":
        name, numbers = "clip", (0.0, inf)
    assert name in STEPS
    a, b = (*numbers, 0.0, 0.0)[:2]
    return f"{{{name.upper()}, {_number(a)}, {_number(b)}}}"


def _number(value: float) -> str:
    """Return an f32 number as a C literal with the same bits."""
    return f"{'-' if value < 0 else ''}INFINITY" if abs(value) == inf else f"{float(np.float32(value)).hex()}f"
