"""Copies to shared memory that are prefetched, some steps before they are multiplied, and fragments in registers: two passes over TIR.

A space annotates the loop over a tile's depth with STAGES. Its body copies the next tiles to shared memory, then
multiplies them, with barriers between (TVM's ThreadSync has put them there). `pipeline_loops` turns it into

    copy tiles 0 .. stages - 2, each a group of asynchronous copies
    for k:
        wait until the group of tile k has arrived; barrier
        copy tile k + stages - 1
        multiply tile k

so there is one barrier a step: after it, tile k is complete, and all threads are done with tile k - 1, whose place
the next copy takes. A vector of 4, 8 or 16 bytes is copied asynchronously, with zeros where padding is read; smaller
ones are loaded to registers before the multiplications and stored after them. (TVM's own InjectSoftwarePipeline leaves
out the barrier after the last waits, and repeats the body once for each stage.)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from tvm import tirx
from tvm.ir import Call, Op, TensorLoad, Var
from tvm_ffi import dtype as DataType
from tvm_ffi.structural import structural_map

from ...algorithms.cuda.annotations import LEAST_ASYNCHRONOUS, STAGES
from ...algorithms.cuda.blocks import WARP
from ..common.rewrites import IF_THEN_ELSE

_ACCESS_PTR = Op.get("tirx.tvm_access_ptr")
_BUFFER_DATA = Op.get("tirx.buffer_data")
_SYNC = "tirx.tvm_storage_sync"


def pipeline_loops(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return the function with its loops annotated by STAGES pipelined."""
    return cast(tirx.PrimFunc, func.with_body(structural_map(func.body, (tirx.For, _pipeline))))


def fragments(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return the function with fragments of scope ``wmma.*``, spread over a warp, replaced by each thread's registers.

    Operands become 32-bit registers, accumulators f32.
    """
    registers: list[tuple[Any, Any]] = []

    def allocate(node: tirx.AllocBuffer) -> tirx.AllocBuffer:
        scope, buffer = node.buffer.scope(), node.buffer
        if not scope.startswith("wmma."):
            return node
        dtype = "float32" if scope == "wmma.accumulator" else "uint32"
        words = int(buffer.shape[0]) * DataType(buffer.dtype).itemsize // 4
        registers.append((buffer, tirx.decl_buffer((words // WARP,), dtype, buffer.name, scope="local")))
        return tirx.AllocBuffer(registers[-1][1])

    def pointer(node: Call) -> Call:
        if node.op.same_as(_BUFFER_DATA):
            for old, new in registers:
                if node.args[0].same_as(old):
                    return tirx.buffer_data(new)
        return node

    body = structural_map(func.body, (tirx.AllocBuffer, allocate))
    return cast(tirx.PrimFunc, func.with_body(structural_map(body, (Call, pointer))))


def _pipeline(loop: tirx.For) -> tirx.Stmt:
    if STAGES not in loop.annotations:
        return loop
    stages, extent, k = int(loop.annotations[STAGES]), int(loop.extent), loop.loop_var
    tiles, copies, plain, work = _classify(loop.body.seq, stages)
    asynchronous = [copy for copy in copies if _is_asynchronous(copy)]
    others = [copy for copy in copies if not _is_asynchronous(copy)]
    registers = [tirx.decl_buffer((1,), copy.value.ty.dtype, "prefetched", scope="local") for copy in others]

    def at(step: Any, statements: list[tirx.Stmt]) -> list[tirx.Stmt]:
        """Return the statements of the loop's step `step`, with the tiles of its stage."""
        return [_stage(each, tiles, step % stages, k, step) for each in statements]

    loads = [tirx.BufferStore(r, copy.value, [0]) for r, copy in zip(registers, others, strict=True)]
    stores = [
        tirx.BufferStore(copy.buffer, tirx.BufferLoad(r, [0]), copy.indices)
        for r, copy in zip(registers, others, strict=True)
    ]
    starts = [_asynchronous_copy(copy) for copy in asynchronous]
    commit, wait = _call("tvmconv_copies_commit"), _call("tvmconv_copies_wait", stages - 2)
    barrier = tirx.Evaluate(tirx.call_intrin("void", _SYNC, "shared.dyn"))
    first: list[tirx.Stmt] = []
    for step in range(stages - 1):
        first += [*at(tirx.const(step, "int32"), [*starts, *others, *plain]), commit] if step < extent else [commit]
    lookahead = k + (stages - 1)

    def predicated(statements: list[tirx.Stmt]) -> list[tirx.Stmt]:
        if not statements:
            return []
        return [
            tirx.IfThenElse(lookahead < extent, tirx.SeqStmt(statements) if statements[1:] else statements[0], None)
        ]

    body = [
        wait,
        barrier,
        *predicated(at(lookahead, [*starts, *plain])),
        commit,
        *predicated(at(lookahead, loads)),
        *at(k, work),
        *predicated(at(lookahead, stores)),
    ]
    steps = tirx.For(k, loop.min, loop.extent, tirx.ForKind.SERIAL, tirx.SeqStmt(body))
    allocations = [tirx.AllocBuffer(buffer) for buffer in [*(tile.staged for tile in tiles), *registers]]
    # Before others take the tiles' place in shared memory, all threads must be done with them.
    return tirx.SeqStmt([*allocations, *first, steps, barrier])


def _classify(
    statements: Iterable[tirx.Stmt], stages: int
) -> tuple[list[_Tile], list[tirx.BufferStore], list[tirx.Stmt], list[tirx.Stmt]]:
    """Return the tiles in shared memory, their copies, copies of several statements, and the work on them."""
    tiles: list[_Tile] = []
    copies: list[tirx.BufferStore] = []
    plain: list[tirx.Stmt] = []  # for conditions that differ within a vector
    work: list[tirx.Stmt] = []
    for each in statements:
        if isinstance(each, tirx.AllocBuffer) and _is_shared(each.buffer):
            tiles.append(_Tile(each.buffer, stages))
        elif isinstance(each, tirx.BufferStore) and _is_shared(each.buffer):
            copies.append(each)
        elif _writes_shared(each):
            plain.append(each)
        elif not _is_sync(each):
            work.append(each)
    return tiles, copies, plain, work


class _Tile:
    """A tile in shared memory, and the buffer that holds it once a stage."""

    def __init__(self, buffer: Any, stages: int) -> None:
        self.buffer, self.size = buffer, int(buffer.shape[0])
        self.staged = tirx.decl_buffer((self.size * stages,), buffer.dtype, buffer.name, scope=buffer.scope())


def _stage(statement: tirx.Stmt, tiles: list[_Tile], stage: Any, k: Any, step: Any) -> tirx.Stmt:
    """Return the statement with `step` for `k` and the tiles of `stage`."""

    def tile_of(buffer: Any) -> _Tile | None:
        return next((tile for tile in tiles if tile.buffer.same_as(buffer)), None)

    def variable(node: Var) -> Any:
        return step if node.same_as(k) else node

    def store(node: tirx.BufferStore) -> tirx.BufferStore:
        tile = tile_of(node.buffer)
        return (
            node
            if tile is None
            else tirx.BufferStore(tile.staged, node.value, [_move(node.indices[0], stage * tile.size)])
        )

    def load(node: TensorLoad) -> Any:
        tile = tile_of(node.source)
        return node if tile is None else tirx.BufferLoad(tile.staged, [_move(node.indices[0], stage * tile.size)])

    def pointer(node: Call) -> Call:
        if not node.op.same_as(_ACCESS_PTR):
            return node
        tile = tile_of(node.args[1].args[0])
        if tile is None:
            return node
        kind, _data, offset, *rest = node.args
        return Call(node.op, [kind, tirx.buffer_data(tile.staged), offset + stage * tile.size, *rest], ret_ty=node.ty)

    stepped = structural_map(statement, (Var, variable))
    return cast(tirx.Stmt, structural_map(stepped, [(tirx.BufferStore, store), (TensorLoad, load), (Call, pointer)]))


def _move(index: Any, by: Any) -> Any:
    if isinstance(index, tirx.Ramp):
        return tirx.Ramp(index.base + by, index.stride, index.lanes)
    return index + by


def _asynchronous_copy(copy: tirx.BufferStore) -> tirx.Stmt:
    """Return a conditional store of loaded elements, zero elsewhere, as an asynchronous copy."""
    inside, value = tirx.const(True), copy.value
    if isinstance(value, Call) and value.op.same_as(IF_THEN_ELSE):
        inside, value, _zero = value.args
    target = tirx.address_of(tirx.BufferLoad(copy.buffer, [_first(copy.indices[0])]))
    source = tirx.address_of(tirx.BufferLoad(value.source, [_first(value.indices[0])]))
    return _call(f"tvmconv_copy_{_copied_bytes(copy)}", target, source, inside)


def _is_asynchronous(copy: tirx.BufferStore) -> bool:
    # A value that is all padding is a constant.
    return _copied_bytes(copy) >= LEAST_ASYNCHRONOUS and isinstance(copy.value, Call | TensorLoad)


def _first(index: Any) -> Any:
    return index.base if isinstance(index, tirx.Ramp) else index


def _copied_bytes(copy: tirx.BufferStore) -> int:
    dtype = DataType(copy.value.ty.dtype)
    return int(dtype.itemsize)


def _call(function: str, *arguments: Any) -> tirx.Stmt:
    return tirx.Evaluate(tirx.call_extern("void", function, *arguments))


def _writes_shared(statement: tirx.Stmt) -> bool:
    found: list[bool] = []

    def store(node: tirx.BufferStore) -> tirx.BufferStore:
        found.append(_is_shared(node.buffer))
        return node

    structural_map(statement, (tirx.BufferStore, store))
    return any(found)


def _is_sync(statement: tirx.Stmt) -> bool:
    return isinstance(statement, tirx.Evaluate) and statement.value.op.same_as(Op.get(_SYNC))


def _is_shared(buffer: Any) -> bool:
    return bool(buffer.scope() == "shared.dyn")
