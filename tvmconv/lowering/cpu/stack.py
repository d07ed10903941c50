"""Allocate small arrays on the stack, such as a tile's sums or a task's rows of one channel."""

from __future__ import annotations

import tvm
from tvm import tirx
from tvm_ffi.structural import structural_map

from .packing import nbytes

# Limit for arrays of scalars, such as a task's rows of one channel, whose allocation takes 70 ns.
SCALARS_BYTES = 16 * 1024
# Limit for arrays of vectors: LLVM aligns them, and knows that no other pointer aliases the stack. Arrays of floats, which TVM aligns to 16
# bytes, are slower on the stack.
VECTORS_BYTES = 256 * 1024
# Limit for a whole function, whose phases have separate arrays: threads of a library for C have 2 MiB.
STACK_BYTES = 512 * 1024
ON_STACK = "disable_lower_builtin"  # TVM's mark of an array for which it does not call the allocator


def keep_on_stack() -> tvm.transform.Pass:
    """Return the pass that allocates small arrays, such as a tile's sums (2 KiB or so), on the stack.

    TVM would allocate a workspace for all but the smallest arrays in each tile or task.
    """
    return tirx.transform.prim_func_pass(_on_stack, opt_level=0, name="KeepOnStack")


def _on_stack(func: tirx.PrimFunc, mod: tvm.IRModule, context: tvm.transform.PassContext) -> tirx.PrimFunc:
    left = STACK_BYTES

    def keep(node: tirx.AllocBuffer) -> tirx.AllocBuffer:
        nonlocal left
        if not all(isinstance(extent, tirx.IntImm) for extent in node.buffer.shape):
            return node  # its size depends on the call
        size, most = nbytes(node.buffer), VECTORS_BYTES if node.buffer.dtype.lanes > 1 else SCALARS_BYTES
        if node.buffer.scope() != "local" and size > min(most, left):
            return node
        left -= size
        return tirx.AllocBuffer(node.buffer, {ON_STACK: tirx.const(True, "bool")})

    return func.with_body(structural_map(func.body, (tirx.AllocBuffer, keep)))
