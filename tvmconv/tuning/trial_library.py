"""Libraries of candidates for measuring: objects with no more than the measured functions, linked together for a turn.

Checks of arguments, and a start of the linker for each candidate, would take longer than some kernels. The kernels' code is that of
the libraries that ship.
"""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

import numpy as np
import tvm
from tvm import tirx

from ..errors import ReplayError
from ..isa import isa_of
from ..lowering.code_generator import generator_of
from ..lowering.common.entry_points import EntryPoints
from ..lowering.compiler import schedule
from ..lowering.cpu.functions import functions_of
from ..lowering.cpu.kernels import generate
from ..lowering.cpu.linker import write_object
from ..lowering.cpu.lowering import lower
from ..measuring.race import Built
from ..runtime.packed import PACK_SYMBOL
from ..targets.target import Target
from .replay import choice_of, compile_candidate, replaying, spaces_of
from .search import Space
from .tasks import Compile, CompiledPart, Describe


def work(task: Describe | Compile) -> list[Space] | CompiledPart | Built | ReplayError:
    """Run one task (in a `tvmconv.support.workers.Worker`, which imports TVM once for many)."""
    if isinstance(task, Describe):
        return spaces_of(task.problem, task.target, task.math)
    try:
        return _part(task) if generator_of(task.target).in_parts and not task.finalist else _whole(task)
    except ReplayError as error:
        return error


def _part(task: Compile) -> CompiledPart:
    problem, target, ending = task.problem, task.target, f"_{task.number}"
    with replaying(task.candidate):
        choice = choice_of(problem, target, task.candidate)
        definition, scheduled = schedule(problem, target, choice, EntryPoints.PACKED)
        lowered = lower(scheduled.mod, definition, EntryPoints.PACKED)
        functions = functions_of(lowered.module)
        pack, packing = None, ""
        if lowered.layout:
            # Candidates differ in their computation, and hardly ever in the layout of their filter.
            function = functions.pop(PACK_SYMBOL)
            packing = f"{PACK_SYMBOL}_{sha256(tvm.ir.save_json(function).encode()).hexdigest()}"
            cpu = sha256(target.folder.encode()).hexdigest()[:16]  # its name may be longer than a file's
            pack = f"{task.folder}/{packing}-{cpu}.o"
            if not os.path.exists(pack):
                _compile({packing: function}, target, pack)
        kernel = f"{task.folder}/{task.number}.o"
        _compile({symbol + ending: function for symbol, function in functions.items()}, target, kernel)
    packed = (lowered.layout.elements, lowered.layout.dtype) if lowered.layout else None
    return CompiledPart(kernel, pack, Built("", packed, ending, packing), isa_of(target.features))


def _compile(functions: dict[str, tirx.PrimFunc], target: Target, path: str) -> None:
    """Compile functions under these names to an object, written whole or not at all."""
    named = {symbol: function.with_attr("global_symbol", symbol) for symbol, function in functions.items()}
    with tvm.transform.PassContext(config={"tirx.disable_assert": True}):
        executable = generate(tvm.IRModule(named), target)
    unfinished = f"{path}.{os.getpid()}.o"  # TVM chooses the format by the ending
    write_object(executable, Path(unfinished), isa_of(target.features))
    os.replace(unfinished, path)


def _whole(task: Compile) -> Built:
    """Compile a candidate into a library of its own."""
    path = task.library
    packed = compile_candidate(task.problem, task.target, task.candidate, path, EntryPoints.PACKED).packed_filter
    return Built(path, (packed["bytes"] // np.dtype(packed["dtype"]).itemsize, packed["dtype"]) if packed else None)
