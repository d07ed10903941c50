"""Bytes that the functions of a kernel allocate as workspaces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import StringImm

from ...runtime.arrays import LINE_BYTES
from ...runtime.kernel_object import Workspace
from ..common.rewrites import find_all
from .functions import functions_of
from .packing import nbytes
from .passes import LAST_OF_ALLOCATION, generation
from .stack import ON_STACK


def allocate(module: tvm.IRModule, target: Any) -> tvm.IRModule:
    """Return a lowered kernel's functions after allocation, for a ``tvm.target.Target``; the pipeline ALLOCATED has the remaining passes."""
    return generation(LAST_OF_ALLOCATION)(tirx.transform.BindTarget(target.with_host(target))(module))


def workspaces(allocated: tvm.IRModule) -> dict[str, Workspace]:
    """Return the most bytes that each function of a module from :func:`allocate` allocates."""
    functions = functions_of(allocated)
    return {name: _with_called(name, functions) for name in functions}


def _with_called(name: str, functions: Mapping[str, tirx.PrimFunc]) -> Workspace:
    """Return the bytes that a function allocates together with its callees, which run one after another."""
    body = functions[name].body
    own = workspace_of(body)
    called = [_with_called(each.value, functions) for each in find_all(body, StringImm) if each.value in functions]
    shared, task = (max((getattr(each, kind) for each in called), default=0) for kind in ("shared", "task"))
    return Workspace(own.shared + shared, own.task + task)


def workspace_of(body: tirx.Stmt) -> Workspace:
    """Return the bytes that a function itself allocates: each array is aligned to a cache line, after a line for its size."""
    loops = [loop for loop in find_all(body, tirx.For) if loop.kind == tirx.ForKind.PARALLEL]
    within = sum(_block(each) for loop in loops for each in find_all(loop.body, tirx.AllocBuffer))
    return Workspace(sum(map(_block, find_all(body, tirx.AllocBuffer))) - within, within)


def _block(node: tirx.AllocBuffer) -> int:
    return 0 if ON_STACK in node.annotations else block_bytes(nbytes(node.buffer))


def block_bytes(size: int) -> int:
    """Return an array's bytes in a workspace."""
    return (-(-size // LINE_BYTES) + 1) * LINE_BYTES
