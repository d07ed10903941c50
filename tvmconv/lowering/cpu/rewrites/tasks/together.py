"""Merge independent loops over tasks into one, where a call has more threads than a plan has tasks for.

A transposed convolution has a loop for each phase, or each step of a phase: threads wait at the end of each, and many threads find too few
tasks. Where a function ends with such loops, those that read nothing that another one writes are merged. For few threads they run in
sequence, as before. Loops store disjoint parts of the output, as a definition's windows partition it; but a loop that stores all of it
initializes it for later loops.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

from tvm import tirx
from tvm.ir import TensorLoad

from .....checks import LARGEST
from ....common.rewrites import IMPORT, find_all, map_nodes, sequence
from .cuts import FEW_THREADS, FUNCTION, TEXT, ask_cuts, axes_of, enough_tasks, rename_repeated, stores, whole_tasks

_AROUND = (tirx.AllocBuffer, tirx.DeclBuffer)


def share_together(body: Any) -> Any:
    """Return the statement with the last loops of each sequence merged where that gives many threads more tasks."""
    return map_nodes(body, tirx.SeqStmt, _join_last)


def steps_of(loops: Sequence[Any]) -> list[list[Any]]:
    """Return consecutive parallel loops grouped into steps, each of which depends on earlier ones, the longest tasks of a step first.

    If they are short, or their extents free, each loop is a step of its own.
    """
    apart = [[loop] for loop in loops]
    if not all(isinstance(loop.extent, tirx.IntImm) for loop in loops) or enough_tasks(_stores(loops)) <= FEW_THREADS:
        return apart
    written, read = (
        [_accesses(loop, tirx.BufferStore) for loop in loops],
        [_accesses(loop, TensorLoad) for loop in loops],
    )
    between, after = set().union(*read), [0] * len(loops)  # the number of steps after each loop's
    for first in reversed(range(len(loops))):
        for later in range(first + 1, len(loops)):
            both = written[first] & written[later]
            if (
                written[first] & read[later]
                or read[first] & written[later]
                or both & between
                or _fills(loops[first], both)
            ):
                after[first] = max(after[first], after[later] + 1)
    steps = [
        [loop for loop, each in zip(loops, after, strict=True) if each == left]
        for left in reversed(range(max(after) + 1))
    ]
    return [sorted(step, key=lambda loop: -stores(loop.body)) for step in steps] if len(steps) < len(loops) else apart


def _fills(loop: Any, arrays: Iterable[Any]) -> bool:
    """Return whether a loop may store all of some array; always for an image that a block is a part of, whose size is unknown."""
    sizes = {each: prod(int(size) for size in each.shape) for each in arrays}
    return any(
        size == LARGEST or int(loop.extent) * stores(loop.body, into=each) >= size for each, size in sizes.items()
    )


def tasks_alike(loop: Any, step: Sequence[Any]) -> int:
    """Return the number of tasks that a step would have if all were as large as those of `loop`."""
    return max(int(loop.extent), int(_stores(step) / max(stores(loop.body), 1)))


def _join_last(sequence_: Any) -> Any:
    statements = list(sequence_.seq)
    first = len(statements)
    while first > 0 and (isinstance(statements[first - 1], _AROUND) or _is_parallel(statements[first - 1])):
        first -= 1
    while first < len(statements) and isinstance(statements[first], tirx.DeclBuffer):
        first += 1  # views of arguments
    loops = [each for each in statements[first:] if _is_parallel(each)]
    steps = steps_of(loops)
    if len(steps) == len(loops):
        return sequence_
    around = [each for each in statements[first:] if not _is_parallel(each)]
    few = tirx.call_extern("int32", FUNCTION, 1, 2, 0, 2) < 2  # with more threads, a task of two pieces is cut
    together = sequence([*around, *(_join(step) if len(step) > 1 else step[0] for step in steps)])
    in_turn = sequence([whole_tasks(each) if _is_parallel(each) else each for each in statements[first:]])
    # `in_turn` first: later arrays are placed in the memory of earlier ones, not the reverse.
    either = rename_repeated(tirx.IfThenElse(few, in_turn, together))
    return sequence([*statements[:first], tirx.AttrStmt(0, IMPORT, TEXT, either)])


def _join(step: Sequence[Any]) -> Any:
    """Return one loop over the tasks of several loops, cut as each requests."""
    task, begin = tirx.Var("task", "int32"), tirx.const(0, "int32")
    before, parts = [], []
    for loop in step:
        asks, cuts, index, body = ask_cuts(loop, axes_of(loop, _stores(step)), tasks_alike(loop, step))
        end = tirx.Var("end", "int32")
        before += [*asks, tirx.Bind(end, begin + loop.extent * cuts)]
        parts.append((end, sequence([tirx.Bind(index, task - begin), body])))
        begin = end
    (_, inside), *others = reversed(parts)
    for end, part in others:
        inside = tirx.IfThenElse(task < end, part, inside)
    announced = tirx.Evaluate(tirx.call_extern("int32", FUNCTION, begin, 1, 0, enough_tasks(_stores(step))))
    return sequence([*before, announced, tirx.For(task, 0, begin, tirx.ForKind.PARALLEL, inside)])


def _is_parallel(statement: Any) -> bool:
    return isinstance(statement, tirx.For) and statement.kind == tirx.ForKind.PARALLEL


def _stores(loops: Sequence[Any]) -> float:
    return sum(int(loop.extent) * stores(loop.body) for loop in loops)


def _accesses(loop: Any, kind: Any) -> set[Any]:
    """Return the arrays that a loop stores to or loads from, without those of single tasks."""
    own = {each.buffer for each in find_all(loop.body, tirx.AllocBuffer)}
    return {each.buffer if kind is tirx.BufferStore else each.source for each in find_all(loop.body, kind)} - own
