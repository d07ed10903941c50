"""The kernels of a network: built and checked as those of a bundle, then lowered again to stand in a Relax module, with that code."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax, tirx
from tvm.ir import StringImm

from ...building.builder import build
from ...building.choosing import Room, algorithms_of
from ...building.fallbacks import Job, candidate_for, ways
from ...errors import BuildError, CompilationError
from ...lowering.common.entry_points import SYMBOL, EntryPoints
from ...lowering.common.rewrites import found
from ...lowering.compiler import Choice
from ...lowering.cpu.functions import functions_of
from ...lowering.cpu.kernels import lower_choice
from ...lowering.cpu.packing import Layout
from ...lowering.cpu.passes import PIPELINE
from ...problem import Problem
from ...runtime.bundle import MANIFEST, Entry, read_bundle
from ...runtime.kernel_object import KernelObject, read_object
from ...runtime.packed import PACK_SYMBOL, PACKED_SYMBOL
from ...signature import format_signature
from ...support.progress import Progress
from ...targets.target import Target
from ...tuning.records import Records
from ...tuning.replay import choice_of
from ..ir.problem_of import plain_filter
from ..operators.elementwise import OPAQUE

Array = npt.NDArray[Any]
# Marks the functions that our passes lower (see `tvmconv.network.emit.tir_pipeline`).
LOWERED = "tvmconv"
_OURS = {LOWERED: 1, "op_pattern": OPAQUE, "tirx.is_scheduled": 1}
# The object file that such a function was compiled to, and what it is called there.
CODE, SYMBOL_OF_CODE = "tvmconv_code", "tvmconv_code_symbol"
# The bytes that it allocates for a call, at most.
WORKSPACE = "tvmconv_workspace"


@dataclass(frozen=True)
class Kernel:
    """A problem's kernel.

    Attributes
    ----------
    problem
        What it computes.
    algorithm, origin
        As a manifest says (see `tvmconv.building.fallbacks`).
    function
        Takes the problem's operands, the filter packed if there is a `pack`, and the output.
    """

    problem: Problem
    algorithm: str
    origin: str
    function: tirx.PrimFunc
    _pack: tirx.PrimFunc | None
    _layout: Layout | None

    def packed(self, filter_: npt.NDArray[np.float64]) -> Array:
        """Return a filter, whose axes are OIX, as `function` takes it."""
        plain = plain_filter(filter_, self.problem)
        if self._layout is None:
            return plain
        packed = tvm.runtime.empty((self._layout.elements,), self._layout.dtype)
        self._packer[PACK_SYMBOL](tvm.runtime.tensor(plain), packed)
        return np.asarray(packed.numpy())

    @cached_property
    def pack(self) -> tirx.PrimFunc | None:
        """Return the function that packs a plain filter, given twice, as `function` takes it; None: it takes it plain.

        Of each function that reads one array TVM 0.27 asks whether it is a reshape, and fails where it is lowered already.
        """
        if self._pack is None:
            return None
        plain, packed = self._pack.params
        again = tirx.decl_buffer(plain.shape, plain.dtype, "again", data_alignment=plain.data_alignment)
        read = tirx.Evaluate(tirx.address_of(tirx.BufferLoad(again, [0] * len(again.shape))))
        body = tirx.SeqStmt([read, self._pack.body])
        function = tirx.PrimFunc([plain, again, packed], body, self._pack.ret_type, self._pack.attrs)
        return function.without_attr("global_symbol").with_attrs(_OURS)

    @property
    def packed_type(self) -> relax.TensorType:
        """Return the type of a packed filter."""
        assert self._layout is not None
        return relax.TensorType((self._layout.elements,), self._layout.dtype)

    @cached_property
    def _packer(self) -> Any:
        # For this machine, whatever the kernel is for: a filter is copied and transformed, alike everywhere.
        host = Target.parse("host").tvm()
        return tvm.compile(tvm.IRModule({PACK_SYMBOL: self._pack}), host, tir_pipeline=PIPELINE)


def build_kernels(
    problems: Iterable[Problem],
    target: str,
    records: Records | None,
    math: str,
    progress: Progress | None,
    trials: int = 0,
    seconds: float | None = None,
    room: Room | None = None,
    prepacked: bool = True,
) -> dict[Problem, Kernel]:
    """Return the kernels of a network's problems, for prepacked filters or plain ones; those that no algorithm gives a right kernel for are left out.

    Problems are listed as often as they occur: whether caches keep their filters from call to call decides algorithms, and what `room`
    there is for them. Each is compiled by the first way that holds (`tvmconv.building.fallbacks`), and checked if this machine can run it.
    """
    network = list(problems)
    problems = list(dict.fromkeys(network))
    records = Records() if records is None else records
    if not problems:
        return {}
    with tempfile.TemporaryDirectory(prefix="tvmconv-") as folder:
        path = Path(folder) / "network.bundle"
        try:
            build(
                problems,
                path,
                target,
                records=records,
                math=math,
                network=network,
                room=room,
                prepacked=prepacked,
                progress=progress,
                trials=trials,
                seconds=seconds,
            )
        except BuildError:
            if not (path / MANIFEST).is_file():
                return {}
        bundle = read_bundle(path)
        entries = {entry.signature: (entry, read_object(bundle, entry)) for entry in bundle.entries}
    known = Target.parse(target)
    ranked = algorithms_of(problems, known, math, network, room, records)
    built_of = ((problem, entries.get(format_signature(problem))) for problem in problems)
    return {
        problem: _lowered(problem, known, *built, records, math, ranked[problem], prepacked)
        for problem, built in built_of
        if built
    }


def _lowered(
    problem: Problem,
    target: Target,
    entry: Entry,
    code: KernelObject,
    records: Records,
    math: str,
    names: tuple[str, ...],
    prepacked: bool,
) -> Kernel:
    """Return the kernel that a bundle's entry was compiled from, as `code`; for plain filters in one function, or in the two that it calls.

    Raises
    ------
    CompilationError
        If it packs its filter otherwise than the entry does: `code` would read another.
    """
    best, like = (find(problem, target, math, names) for find in (records.best, records.of_sums))
    job = Job(problem, target, math, names, best, "", False, like)
    way = next(each for each in ways(job) if (each.origin, each.algorithm) == (entry.origin, entry.algorithm))
    candidate = candidate_for(job, way) if way.record else None
    choice = Choice(entry.algorithm) if candidate is None else choice_of(problem, target, candidate)
    lowered = lower_choice(problem, target, choice, EntryPoints.PACKED if prepacked else EntryPoints.BOTH)
    layout = None if lowered.layout is None else lowered.layout.described()
    if layout != entry.packed_filter:
        raise CompilationError(
            f"{entry.signature} by {entry.algorithm} was built for filters packed as {entry.packed_filter}, and is now lowered for"
            f" {layout}; were tuning records changed meanwhile? Compile again"
        )
    functions = functions_of(lowered.module)
    packs = bool(lowered.layout) if prepacked else _calls_pack(functions[SYMBOL])
    function = functions[PACKED_SYMBOL if packs else SYMBOL]
    symbol, content = str(function.attrs["global_symbol"]), np.frombuffer(code.content, np.uint8)
    kept = {CODE: tvm.runtime.tensor(content), SYMBOL_OF_CODE: symbol, WORKSPACE: code.workspaces[symbol].shared}
    function = function.without_attr("global_symbol")
    function = function.with_attrs({**_OURS, **kept})
    made = (functions[PACK_SYMBOL], lowered.layout) if packs else (None, None)
    return Kernel(problem, entry.algorithm, entry.origin, function, *made)


def _calls_pack(function: tirx.PrimFunc) -> bool:
    return any(each.value == PACK_SYMBOL for each in found(function.body, StringImm))
