"""Kernels of a network for convolutions with free extents: families' libraries, and stubs for them in a Relax module."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import tirx

from ...building.builder import build_kernels as build_in
from ...building.decision.rank_families import Blocks
from ...building.fallbacks import Outcome, bundle_of
from ...building.options import BuildOptions, complete
from ...family import ProblemFamily
from ...lowering.common.entry_points import SYMBOL
from ...lowering.cpu.family import blocks_of
from ...lowering.cpu.functions import functions_of
from ...problem import Problem
from ...runtime.arrays import KERNEL_TYPES
from ...runtime.kernel_object import read_object
from ...runtime.library import load_function
from ...runtime.packed import PACK_SYMBOL, PACKED_SYMBOL
from ...runtime.selection import obstacle
from ...support.progress import Progress
from ...targets.target import CpuTarget, Target
from ..ir.problem_of import plain_filter
from .build import CODE, OURS, SYMBOL_OF_CODE, WORKSPACE, compile_packer
from .family_sizes import COUNT

# Attribute of a family's stub: the pads that the kernel takes after its arrays.
PADS = "tvmconv_pads"


@dataclass(frozen=True)
class FreeKernel:
    """A family's kernel: its object file, the symbol of its function there, and the bytes that this allocates."""

    family: ProblemFamily
    algorithm: str
    origin: str
    code: npt.NDArray[np.uint8]
    symbol: str
    workspace: int
    _packed: tuple[int, str] | None
    _pack: Callable[..., object] | None
    _target: CpuTarget
    _blocks: Blocks

    def packed(self, filter_: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
        """Return a filter, whose axes are OIX, packed for the kernel."""
        plain = plain_filter(filter_, self.family.typical)
        if self._packed is None:
            return plain
        packed = tvm.runtime.tensor(np.zeros(*self._packed))
        (self._pack or self._packer[PACK_SYMBOL])(tvm.runtime.tensor(plain), packed)
        return np.asarray(packed.numpy())

    @cached_property
    def _packer(self) -> Any:
        """The packing function compiled for this machine, which cannot run the kernel's own."""
        block = blocks_of(self.family, self._target, self._blocks)[0]
        return compile_packer(functions_of(block.lowered.module)[PACK_SYMBOL])

    def function(self, pads: Sequence[int], ranks: Sequence[int]) -> tirx.PrimFunc:
        """Return a stub for the kernel with some pads, and arrays of some ranks."""
        types = [dtype for _, dtype in self.family.typical.arrays.values()]
        params = [
            tirx.decl_buffer(
                [tirx.Var(f"s{number}_{axis}", "int64") for axis in range(rank)],
                KERNEL_TYPES[dtype].name,
                f"array{number}",
            )
            for number, (rank, dtype) in enumerate(zip(ranks, types, strict=True))
        ]
        attrs = {CODE: tvm.runtime.tensor(self.code), SYMBOL_OF_CODE: self.symbol, WORKSPACE: self.workspace}
        function = tirx.PrimFunc(params, tirx.Evaluate(tirx.const(0, "int32")))
        return function.with_attrs({**OURS, **attrs, PADS: list(pads)})


def build_families(
    sizes: Mapping[ProblemFamily, Sequence[Problem]], target: str, math: str, progress: Progress | None
) -> dict[ProblemFamily, FreeKernel]:
    """Return the kernels of families, for prepacked filters, without families that have no correct kernel.

    `sizes` has each family's problems: one for each of its layers and each of several sizes of the network's inputs.
    """
    if not sizes:
        return {}
    network = [problem for listed in sizes.values() for problem in listed[COUNT // 2 :: COUNT]]
    options = BuildOptions(math=math, prepacked=True, progress=progress, sizes=sizes, network=network)
    with tempfile.TemporaryDirectory(prefix="tvmconv-") as folder:
        outcomes = build_in([], [Target.parse(target)], Path(folder), complete(options), families=list(sizes))
        return {each.job.problem: _kernel(each) for each in outcomes if each.built is not None}  # type: ignore[misc]


def _kernel(outcome: Outcome) -> FreeKernel:
    built, family, bundle = outcome.built, outcome.job.problem, bundle_of(outcome.job)
    assert built is not None and isinstance(family, ProblemFamily)
    runs_here = obstacle(bundle.targets[outcome.job.target.name]) is None
    entry, code = built.entry, read_object(bundle, built.entry)
    layout = entry.packed_filter
    symbol = PACKED_SYMBOL if layout else SYMBOL
    shape = (layout["bytes"] // np.dtype(layout["dtype"]).itemsize, layout["dtype"]) if layout else None
    return FreeKernel(
        family,
        entry.algorithm,
        entry.origin,
        np.frombuffer(code.content, np.uint8),
        symbol,
        code.workspaces[symbol].shared,
        shape,
        load_function(bundle, entry, PACK_SYMBOL) if layout and runs_here else None,
        outcome.job.target,  # type: ignore[arg-type]  # families are for CPUs
        next(each.blocks for each in outcome.job.decision.ways if each.algorithm == entry.algorithm),
    )
