"""Memory that the functions of a kernel take from the allocator of workspaces."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx
from tvm.ir import StringImm

from ...runtime.arrays import LINE_BYTES
from ...runtime.kernel_object import Workspace
from ..common.entry_points import SYMBOL
from ..common.rewrites import find_all
from .functions import functions_of
from .packing import nbytes
from .passes import LAST_OF_ALLOCATION, generation
from .stack import ON_STACK


def allocate(module: tvm.IRModule, target: Any) -> tvm.IRModule:
    """Return the functions of a lowered kernel for a ``tvm.target.Target``, each array in its place: `tvm.compile` with ALLOCATED goes on."""
    return generation(LAST_OF_ALLOCATION)(tirx.transform.BindTarget(target.with_host(target))(module))


def workspaces(allocated: tvm.IRModule) -> dict[str, Workspace]:
    """Return what each function of a module that :func:`allocate` returned takes from the allocator, at most."""
    functions = functions_of(allocated)
    sizes = {name: workspace_of(function.body) for name, function in functions.items()}
    called = [sizes[each.value] for each in find_all(functions[SYMBOL].body, StringImm) if each.value in sizes]
    if called:  # `_both`: one after the other
        own = sizes[SYMBOL]
        shared, task = max(each.shared for each in called), max(each.task for each in called)
        sizes[SYMBOL] = Workspace(own.shared + shared, own.task + task)
    return sizes


def workspace_of(body: tirx.Stmt) -> Workspace:
    """Return what a function itself allocates: each array from a cache line on, with a line for its size before it."""
    loops = [loop for loop in find_all(body, tirx.For) if loop.kind == tirx.ForKind.PARALLEL]
    within = sum(_block(each) for loop in loops for each in find_all(loop.body, tirx.AllocBuffer))
    return Workspace(sum(map(_block, find_all(body, tirx.AllocBuffer))) - within, within)


def _block(node: tirx.AllocBuffer) -> int:
    return 0 if ON_STACK in node.annotations else block_bytes(nbytes(node.buffer))


def block_bytes(size: int) -> int:
    """Return what an array of so many bytes takes of a workspace."""
    return (-(-size // LINE_BYTES) + 1) * LINE_BYTES
