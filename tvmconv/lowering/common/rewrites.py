"""Rewrites of lowered loops, each requested by a schedule's annotation on a loop.

A rewrite does what was requested, or raises RewriteError with the loop and the reason; `check_answered` raises if an
annotation is left that no rewrite took. So a loop that TVM brings into another form is an error, not a slow kernel.

`tvmconv.algorithms.annotations` lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod
from typing import Any, NoReturn

from tvm import tirx
from tvm.ir import Call, Op, TensorLoad
from tvm_ffi.structural import structural_map, structural_walk

from ...algorithms.annotations import IDENTITY, PREFIX
from ...errors import RewriteError

IMPORT = "pragma_import_llvm"  # LLVM IR text, which defines the functions of instructions
IF_THEN_ELSE, EXTERN = Op.get("prim.if_then_else"), Op.get("tirx.call_pure_extern")


def asks_for(loop: Any, rewrite: str) -> bool:
    """Return whether the schedule's annotation requests a rewrite of this loop."""
    return rewrite in loop.annotations


def map_nodes(body: Any, kind: Any, answer: Callable[[Any], Any]) -> Any:
    """Return the statement with ``answer(node)`` in place of each node of a kind, inner ones first.

    An error that `answer` raises ends the walk; passed on by TVM's C++, it would become another error.
    """
    errors: list[RewriteError] = []

    def answer_or_keep(node: Any) -> Any:
        try:
            return node if errors else answer(node)
        except RewriteError as error:
            errors.append(error)
            return node

    result = structural_map(body, (kind, answer_or_keep))
    if errors:
        raise errors[0]
    return result


def find_all(body: Any, *kinds: Any) -> list[Any]:
    """Return all nodes of some kinds."""
    nodes: list[Any] = []
    structural_walk(body, [(kind, nodes.append) for kind in kinds])
    return nodes


def rewrite_loops(body: Any, rewrite: str, answer: Callable[[Any], Any]) -> Any:
    """Return the statement with ``answer(loop)`` in place of each loop annotated with `rewrite`."""
    return map_nodes(body, tirx.For, lambda loop: answer(loop) if asks_for(loop, rewrite) else loop)


def settle(loop: Any, rewrite: str | tuple[str, ...], body: Any = None) -> Any:
    """Return a loop without the annotations of some rewrites, possibly with another body.

    A loop of one iteration that has no other annotations becomes its body.
    """
    rewrites = (rewrite,) if isinstance(rewrite, str) else rewrite
    left = {key: value for key, value in loop.annotations.items() if key not in rewrites}
    body = loop.body if body is None else body
    if not left and isinstance(loop.extent, tirx.IntImm) and int(loop.extent) == 1:
        return substitute(body, {loop.loop_var: loop.min})
    return tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, body, annotations=left)


def refuse(loop: Any, rewrite: str, reason: str) -> NoReturn:
    """Raise RewriteError: the rewrite of this loop cannot be done."""
    how = loop.annotations.get(rewrite)
    kind = f"{rewrite.removeprefix(PREFIX)}{f' ({how})' if isinstance(how, str) else ''}"
    raise RewriteError(f"the rewrite {kind} of the loop over {loop.loop_var.name} is refused: {reason}")


def with_own_loops(body: Any) -> Any:
    """Return a copy of a statement whose loops have their own variables."""

    def own(loop: Any) -> Any:
        var = tirx.Var(loop.loop_var.name, "int32")
        inside = substitute(loop.body, {loop.loop_var: var})
        return tirx.For(var, loop.min, loop.extent, loop.kind, inside, annotations=loop.annotations)

    return map_nodes(body, tirx.For, own)


def element_at(buffer: Any, indices: Any) -> Any:
    """Return the element of a flat buffer at the multidimensional `indices`."""
    shape = [int(extent) for extent in buffer.shape]
    strides = buffer.strides or [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return sum((index * stride for index, stride in zip(indices, strides, strict=True)), tirx.const(0, "int32"))


def sequence(statements: list[Any]) -> Any:
    """Return statements one after the other; a single one itself."""
    return statements[0] if len(statements) == 1 else tirx.SeqStmt(statements)


def asked_of(func: tirx.PrimFunc) -> set[str]:
    """Return the annotations of a function and its loops that request rewrites."""
    of_loops = (key for loop in find_all(func.body, tirx.For) for key in loop.annotations)
    given = (*of_loops, *(func.attrs.keys() if func.attrs else ()))
    return {key for key in given if key.startswith(PREFIX) and key not in IDENTITY}


def check_answered(func: tirx.PrimFunc, later: Iterable[str] = ()) -> None:
    """Raise RewriteError for annotations left over: of loops, and of the function those that no pass takes `later`."""
    for loop in find_all(func.body, tirx.For):
        for key in loop.annotations:
            if key.startswith(PREFIX):
                refuse(loop, key, "nothing answered it")
    if left := asked_of(func).difference(later):
        raise RewriteError(f"the function asks for {', '.join(sorted(left))}, which is not a rewrite")


def check_well_formed(func: tirx.PrimFunc) -> None:
    """Raise RewriteError if a function uses an undefined variable, or always accesses an element outside of a buffer."""
    undefined = tirx.analysis.undefined_vars(func.body, func.params)
    if undefined:
        raise RewriteError(f"a rewrite left {', '.join(var.name for var in undefined)} undefined")
    imported = "".join(each.value.value for each in find_all(func.body, tirx.AttrStmt) if each.attr_key == IMPORT)
    for call in find_all(func.body, Call):
        if call.op.same_as(EXTERN) and f"@{call.args[0].value}(" not in imported:
            raise RewriteError(
                f"nothing defines {call.args[0].value}, which is called; no rewrite turned it into an instruction"
            )
    # TVM puts a loop's pragmas around the loop, where the variable that they name is not yet defined.
    body = structural_map(func.body, (tirx.AttrStmt, lambda each: each.body))
    try:
        tirx.analysis.verify_well_formed(func.with_body(body))
    except (ValueError, RuntimeError) as error:
        raise RewriteError(f"a rewrite left a malformed function: {error}") from error

    for access in find_all(_unconditional(func.body), TensorLoad, tirx.BufferStore):
        buffer = access.source if isinstance(access, TensorLoad) else access.buffer
        for index, extent in zip(access.indices, buffer.shape, strict=True):
            ramp = isinstance(index, tirx.Ramp)
            ends = (index.base, index.base + index.stride * (index.lanes - 1)) if ramp else (index,)
            if any(isinstance(end, tirx.IntImm) and not 0 <= int(end) < int(extent) for end in ends):
                raise RewriteError(f"{buffer.name} has {extent} elements along an axis of which {index} is accessed")


def _unconditional(body: Any) -> Any:
    """Return the statement without parts under conditions, which may never hold."""

    def without(call: Any) -> Any:
        return call.args[2] if call.op.same_as(IF_THEN_ELSE) else call

    return structural_map(body, [(tirx.IfThenElse, lambda _: tirx.Evaluate(0)), (Call, without)])


def substitute(value: Any, variables: dict[Any, Any]) -> Any:
    """Return `value` with other expressions in place of variables."""

    def instead(var: Any) -> Any:
        for each, other in variables.items():
            if each.same_as(var):
                return tirx.const(other, "int32") if isinstance(other, int) else other
        return var

    return structural_map(value, (tirx.Var, instead))
