"""Cut tasks finer at run time, where a call has more threads than a plan has tasks for.

A space requests it (CUT) on serial loops of a task, with the name of their axis: loops along one axis are cut at the same places, so that
each piece reads what it wrote itself. Each call asks the launcher for the number of pieces (`CutAxis`); for few threads that is 1, and the
task is unchanged. Statements outside of such loops, and not under a definition's condition IN_PIECE, are repeated by each piece. Each
output is stored by one piece, so results have the same bits for any number of pieces.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, prod
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import Call

from .....algorithms.annotations import CUT, IN_PIECE
from ....common.rewrites import (
    EXTERN,
    IMPORT,
    asks_for,
    find_all,
    map_nodes,
    refuse,
    sequence,
    settle,
    substitute,
)

# Least number of elements that a piece stores, sums included: some 10 us on a core that adds 8 products at a time. The number of pieces is
# rounded up, as twice as many slightly smaller tasks are better than uncut ones.
LEAST_STORES = 1 << 18
# Products that a core adds in the time that it takes to read and store an element, mostly in L2 or L3.
PRODUCTS = 8
PARTS = 16  # unit of repeated work: this fraction of a piece's time
FEW_THREADS = 8  # for up to so many, plans have enough tasks
FUNCTION = "tvmconv_cuts"
_MOST = 2**31 - 1
# The launcher fills the slot; without a launcher, as under TVM's runtime, tasks stay whole.
TEXT = f"""
@__TVMBackendCutTasks = weak hidden global ptr null
define linkonce_odr hidden i32 @{FUNCTION}(i32 %tasks, i32 %pieces, i32 %again, i32 %enough) alwaysinline nounwind {{
  %slot = load ptr, ptr @__TVMBackendCutTasks
  %none = icmp eq ptr %slot, null
  br i1 %none, label %whole, label %ask
ask:
  %cuts = call i32 %slot(i32 %tasks, i32 %pieces, i32 %again, i32 %enough)
  ret i32 %cuts
whole:
  ret i32 1
}}
"""


@dataclass(frozen=True)
class CutAxis:
    """An axis along which tasks may be cut.

    Attributes
    ----------
    pieces
        Largest number of pieces.
    again
        Time of the work that each piece repeats, in units of 1 / PARTS of a piece's.
    enough
        Number of tasks up to which tasks are cut.
    """

    pieces: int
    again: int
    enough: int

    def cuts(self, tasks: int, threads: int) -> int:
        """Return the number of pieces into which `lowering/native/launcher.c` cuts each of `tasks` tasks."""
        best, least = 1, -(-tasks // threads) * (PARTS * self.pieces + self.again)
        if threads <= FEW_THREADS:
            return 1
        for count in range(2, min(self.pieces, self.enough // tasks) + 1):
            busiest = -(-tasks * count // threads) * (PARTS * -(-self.pieces // count) + self.again)
            if 16 * busiest <= 15 * least:
                best, least = count, busiest
        return best


def cut_tasks(body: Any) -> Any:
    """Return the statement with the tasks of parallel loops cut where requested."""
    cut = map_nodes(body, tirx.For, lambda loop: _divide(loop) if loop.kind == tirx.ForKind.PARALLEL else loop)
    return _place_pieces(cut, {})  # settles requests outside of parallel loops


def announce_tasks(body: Any, products: int = 1) -> Any:
    """Return the statement with calls that tell the launcher the number and size of each loop's tasks, also of loops that were not cut.

    Storing an element takes as long as `products` products.
    """

    def announce(task: Any) -> Any:
        if task.kind != tirx.ForKind.PARALLEL or not isinstance(task.extent, tirx.IntImm):
            return task
        tasks = int(task.extent)  # may have 64 bits; the function takes 32
        enough = enough_tasks(tasks * stores(task.body) * products)
        asked = tirx.call_extern("int32", FUNCTION, *(min(each, _MOST) for each in (tasks, 1, 0, enough)))
        return tirx.AttrStmt(0, IMPORT, TEXT, tirx.SeqStmt([tirx.Evaluate(asked), task]))

    return map_nodes(body, tirx.For, announce)


def stores(statement: Any, shares: Mapping[str, float] | None = None, times: float = 1, into: Any = None) -> float:
    """Return the number of elements that a statement stores, in both branches of conditions; loops without a fixed extent count once.

    `shares` has the fraction that counts of loops along each axis, and of statements needed by their pieces. If `into` is given, only
    stores into this array count.
    """
    if isinstance(statement, tirx.For):
        extent = int(statement.extent) if isinstance(statement.extent, tirx.IntImm) else 1
        share = (shares or {}).get(_axis_of(statement), 1) if asks_for(statement, CUT) else 1
        return stores(statement.body, shares, times * extent * share, into)
    if isinstance(statement, tirx.BufferStore):
        return times if into is None or statement.buffer.same_as(into) else 0  # not vectorized yet: one element
    if isinstance(statement, tirx.SeqStmt):
        return sum(stores(each, shares, times, into) for each in statement.seq)
    if isinstance(statement, tirx.IfThenElse):
        needed = times * prod((shares or {}).get(_axis_of(each), 1) for each in _calls(statement.condition))
        otherwise = stores(statement.else_case, shares, times, into) if statement.else_case is not None else 0
        return stores(statement.then_case, shares, needed, into) + otherwise
    return stores(statement.body, shares, times, into) if hasattr(statement, "body") else 0


def enough_tasks(stored: float) -> int:
    """Return the number of tasks that suffices for loops that store `stored` elements."""
    return int(stored) // LEAST_STORES


def axes_of(task: Any, work: float = 0) -> dict[str, CutAxis]:
    """Return the axes along which the tasks of a parallel loop may be cut, those with least repeated work first.

    `work` is the number of elements stored by all loops merged with this one.
    """
    asking = [loop for loop in find_all(task.body, tirx.For) if asks_for(loop, CUT)]
    if not all(isinstance(loop.extent, tirx.IntImm) for loop in (task, *asking)):
        return {}  # extents are free
    whole, found = stores(task.body) if asking else 0, {}
    if int(task.extent) * int(whole) // LEAST_STORES <= int(task.extent):
        return {}
    enough = ceil(max(work, int(task.extent) * int(whole)) / LEAST_STORES)
    for name in dict.fromkeys(map(_axis_of, asking)):
        loops = [loop for loop in asking if _axis_of(loop) == name]
        pieces = min(int(loop.extent) for loop in loops)
        for loop in loops:
            if int(loop.extent) % pieces:
                refuse(loop, CUT, f"it has {loop.extent} iterations, and another loop of its axis {pieces}")
        again = stores(task.body, {name: 0})
        beside = sum(int(more) for loop in loops for more in loop.annotations[CUT].split()[1:])
        found[name] = CutAxis(pieces, ceil(PARTS * (again * pieces / (whole - again) + beside)), enough)
    return dict(sorted(found.items(), key=lambda each: each[1].again / each[1].pieces))


def is_in_piece(condition: Any) -> bool:
    """Return whether a condition is a call of IN_PIECE."""
    return isinstance(condition, Call) and condition.op.same_as(EXTERN) and condition.args[0].value == IN_PIECE


def _calls(condition: Any) -> list[Any]:
    return [call for call in find_all(condition, Call) if is_in_piece(call)]


def _axis_of(asking: Any) -> str:
    """Return the axis of a loop that requests CUT, or of a call of IN_PIECE."""
    return str(asking.annotations[CUT].split()[0] if isinstance(asking, tirx.For) else asking.args[1].value)


def ask_cuts(task: Any, axes: Mapping[str, CutAxis], tasks: Any) -> tuple[list[Any], Any, Any, Any]:
    """Return the statements that ask for cuts of a loop as if it had `tasks` tasks, the number of pieces of each, and their variable and body."""
    asks, counts, all_cuts = [], {}, tirx.Var("cuts", "int32")
    count: Any = tirx.const(1, "int32")
    for name, axis in axes.items():
        counts[name] = tirx.Var(f"cuts_{name}", "int32")
        asked = tirx.call_extern("int32", FUNCTION, tasks * count, axis.pieces, axis.again, axis.enough)
        asks.append(tirx.Bind(counts[name], asked))
        count *= counts[name]
    index, left = tirx.Var(task.loop_var.name, "int32"), tirx.Var("piece", "int32")
    inside, places = [tirx.Bind(left, tirx.truncmod(index, all_cuts))], {}
    number: Any = left
    for name, axis in axes.items():
        piece, number = tirx.truncmod(number, counts[name]), tirx.truncdiv(number, counts[name])
        first, end = tirx.Var(f"first_{name}", "int32"), tirx.Var(f"end_{name}", "int32")
        inside.append(tirx.Bind(first, tirx.truncdiv(piece * axis.pieces, counts[name])))
        inside.append(tirx.Bind(end, tirx.truncdiv((piece + 1) * axis.pieces, counts[name])))
        places[name] = (axis.pieces, first, end)
    body = substitute(_place_pieces(task, places).body, {task.loop_var: tirx.truncdiv(index, all_cuts)})
    return [*asks, tirx.Bind(all_cuts, count)], all_cuts, index, sequence([*inside, body])


def whole_tasks(statement: Any) -> Any:
    """Return a statement without requests for cuts."""
    return _place_pieces(statement, {})


def _divide(task: Any) -> Any:
    axes = axes_of(task)
    if not axes:
        return whole_tasks(task)
    asks, cuts, index, inside = ask_cuts(task, axes, task.extent)
    loop = tirx.For(index, 0, task.extent * cuts, task.kind, inside, annotations=task.annotations)
    # Whole tasks have code of their own: conditions of pieces make grouped Winograd kernels slower.
    return tirx.AttrStmt(
        0, IMPORT, TEXT, sequence([*asks, rename_repeated(tirx.IfThenElse(cuts == 1, whole_tasks(task), loop))])
    )


def rename_repeated(statement: Any) -> Any:
    """Return a statement whose branches have loop variables and buffers of their own."""
    module = tvm.IRModule({"branches": tirx.PrimFunc([], statement)})
    return tirx.transform.ConvertSSA()(module)["branches"].body


def _place_pieces(body: Any, places: dict[str, tuple[int, Any, Any]]) -> Any:
    """Return a statement whose loops execute only the iterations of a piece of their axis, without requests for cuts.

    Loops keep their constant extents, which LLVM unrolls, and get a condition: bounds known at run time make Winograd kernels slower.
    """

    def piece(loop: Any) -> Any:
        if not asks_for(loop, CUT):
            return loop
        if _axis_of(loop) not in places:
            return settle(loop, CUT)
        pieces, first, end = places[_axis_of(loop)]
        times = int(loop.extent) // pieces
        left = {key: value for key, value in loop.annotations.items() if key != CUT}
        inside = tirx.And(first * times <= loop.loop_var, loop.loop_var < end * times)
        body = tirx.IfThenElse(inside, loop.body, None)
        return tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, body, annotations=left)

    def needed(call: Any) -> Any:
        if not is_in_piece(call):
            return call
        if _axis_of(call) not in places:
            return tirx.const(True, "bool")
        _, first, end = places[_axis_of(call)]
        return tirx.And(first <= call.args[3], call.args[2] < end)

    return map_nodes(map_nodes(body, tirx.For, piece), Call, needed)
