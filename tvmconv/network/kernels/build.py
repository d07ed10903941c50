"""Kernels of a network: built and verified as those of a bundle, with their functions for a Relax module."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax, tirx
from tvm.ir import StringImm
from tvm_ffi.serialization import from_json_graph_str

from ...building.builder import build_kernels as build_in
from ...building.decision.rank import Room
from ...building.fallbacks import BuiltKernel, Outcome, bundle_of
from ...building.options import BuildOptions, complete
from ...lowering.common.entry_points import SYMBOL, EntryPoints
from ...lowering.common.rewrites import find_all
from ...lowering.cpu.functions import functions_of
from ...lowering.cpu.passes import PIPELINE
from ...lowering.cpu.rewrites.next_filter import NEXT_SYMBOL, find_prefetching
from ...problem import Problem
from ...runtime.library import load_function
from ...runtime.packed import PACK_SYMBOL, PACKED_SYMBOL
from ...runtime.selection import obstacle
from ...signature import parse_signature
from ...support.progress import Progress
from ...targets.target import Target
from ...tuning.records import Records
from ..ir.problem_of import plain_filter
from ..operators.elementwise import OPAQUE

Array = npt.NDArray[Any]
# Marks the functions that our passes lower (see `tvmconv.network.emit.tir_pipeline`).
LOWERED = "tvmconv"
OURS = {LOWERED: 1, "op_pattern": OPAQUE, "tirx.is_scheduled": 1}
# The object file of such a function, and its symbol there.
CODE, SYMBOL_OF_CODE = "tvmconv_code", "tvmconv_code_symbol"
# Symbol there of the function that prefetches given lines, if there is one.
NEXT_SYMBOL_OF_CODE = "tvmconv_code_next"
# The most bytes that it allocates in a call.
WORKSPACE = "tvmconv_workspace"


@dataclass(frozen=True)
class NetworkKernel:
    """A problem's kernel: `function` takes the operands, with a packed filter if there is a `pack`, and the output."""

    problem: Problem
    algorithm: str
    origin: str
    function: tirx.PrimFunc
    _pack: tirx.PrimFunc | None
    _built_pack: Callable[..., object] | None

    def packed(self, filter_: npt.NDArray[np.float64]) -> Array:
        """Return a filter, whose axes are OIX, packed for `function`."""
        plain = plain_filter(filter_, self.problem)
        if self._pack is None:
            return plain
        shape, dtype = self._packed
        packed = tvm.runtime.tensor(np.zeros(shape, dtype))  # packing does not write gaps
        (self._built_pack or self._packer[PACK_SYMBOL])(tvm.runtime.tensor(plain), packed)
        return np.asarray(packed.numpy())

    @cached_property
    def pack(self) -> tirx.PrimFunc | None:
        """Return the function that packs a filter, passed twice, for `function`; None: this takes a plain filter.

        Twice, because TVM 0.27 tests whether a function of one array is a reshape, and fails on one that is lowered already.
        """
        if self._pack is None:
            return None
        plain, packed = self._pack.params
        again = tirx.decl_buffer(plain.shape, plain.dtype, "again", data_alignment=plain.data_alignment)
        read = tirx.Evaluate(tirx.address_of(tirx.BufferLoad(again, [0] * len(again.shape))))
        body = tirx.SeqStmt([read, self._pack.body])
        function = tirx.PrimFunc([plain, again, packed], body, self._pack.ret_type, self._pack.attrs)
        return function.without_attr("global_symbol").with_attrs(OURS)

    @property
    def packed_type(self) -> relax.TensorType:
        """Return the type of a packed filter."""
        return relax.TensorType(*self._packed)

    @property
    def growth(self) -> float:
        """Return the ratio of a packed filter's bytes to a plain one's."""
        if self._pack is None:
            return 1.0
        plain, packed = (prod(map(int, each.shape)) * each.dtype.itemsize for each in self._pack.params)
        return packed / plain

    @property
    def _packed(self) -> tuple[tuple[int, ...], str]:
        assert self._pack is not None
        packed = self._pack.params[-1]
        return tuple(int(extent) for extent in packed.shape), str(packed.dtype)

    @cached_property
    def _packer(self) -> Any:
        return compile_packer(self._pack)


def compile_packer(pack: tirx.PrimFunc | None) -> Any:
    """Return a kernel's packing function compiled for this machine; packing gives the same numbers on every CPU."""
    host = Target.parse("host").tvm()
    return tvm.compile(tvm.IRModule({PACK_SYMBOL: pack}), host, tir_pipeline=PIPELINE)


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
) -> dict[Problem, NetworkKernel]:
    """Return the kernels of a network's problems, for prepacked or plain filters, without problems that have no correct kernel.

    Problems are listed as often as they occur, since algorithms are chosen by whether caches keep all filters from call to call, and by
    the `room` for filters. Each is compiled by the first way that works (`tvmconv.building.fallbacks`), and verified if this machine can
    run it.
    """
    network = list(problems)
    if not network:
        return {}
    options = BuildOptions(
        records=records,
        math=math,
        network=network,
        room=room,
        prepacked=prepacked,
        progress=progress,
        trials=trials,
        seconds=seconds,
    )
    with tempfile.TemporaryDirectory(prefix="tvmconv-") as folder:
        outcomes = build_in(network, [Target.parse(target)], Path(folder), complete(options), keep_functions=True)
        found_of = {each.job.problem: _kernel(each, each.built) for each in outcomes if each.built is not None}
    return {problem: found_of[problem] for problem in dict.fromkeys(network) if problem in found_of}


def _kernel(outcome: Outcome, built: BuiltKernel) -> NetworkKernel:
    """Return a built kernel: one function for plain filters, or the two halves that it calls."""
    problem, prepacked = parse_signature(built.entry.signature), outcome.job.entry_points is EntryPoints.PACKED
    assert built.functions is not None and built.code is not None
    # Not `tvm.ir.load_json`, which spends most of its time upgrading files of earlier versions.
    functions = functions_of(from_json_graph_str(built.functions))
    packs = built.entry.packed_filter is not None if prepacked else _calls_pack(functions[SYMBOL])
    called = PACKED_SYMBOL if packs else SYMBOL
    function = functions[called]
    code = built.code
    symbol, content = str(function.attrs["global_symbol"]), np.frombuffer(code.content, np.uint8)
    kept = {CODE: tvm.runtime.tensor(content), SYMBOL_OF_CODE: symbol, WORKSPACE: code.workspaces[symbol].shared}
    # For a product, whose filter is data, the chosen function may not be the one with a prefetching variant.
    if NEXT_SYMBOL in code.workspaces and called == find_prefetching(functions):
        kept[NEXT_SYMBOL_OF_CODE] = NEXT_SYMBOL
    function = function.without_attr("global_symbol").with_attrs({**OURS, **kept})
    if not packs:
        return NetworkKernel(problem, built.entry.algorithm, built.entry.origin, function, None, None)
    bundle = bundle_of(outcome.job)
    runs_here = obstacle(bundle.targets[outcome.job.target.name]) is None
    built_pack = load_function(bundle, built.entry, PACK_SYMBOL) if runs_here else None
    return NetworkKernel(
        problem, built.entry.algorithm, built.entry.origin, function, functions[PACK_SYMBOL], built_pack
    )


def _calls_pack(function: tirx.PrimFunc) -> bool:
    return any(each.value == PACK_SYMBOL for each in find_all(function.body, StringImm))
