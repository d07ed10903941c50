"""Compile kernels for GPUs: a `tvmconv.lowering.code_generator.CodeGenerator`."""

from __future__ import annotations

import os
from typing import NoReturn

import tvm

from ...algorithms.definition import Definition
from ...errors import TargetError, TvmconvError
from ...problem import Problem
from ...targets.cuda import CudaTarget
from ..code_generator import Written
from ..common.entry_points import EntryPoints
from ..compiler import Choice, schedule
from .linker import link_cuda
from .lowering import lower_cuda, to_source
from .nvcc import check_nvcc, compile_fatbin
from .sass import disassemble
from .wgmma import scheduled_tile

stages = ("tir", "cuda", "sass")
passes = ()
in_parts = False


def check_tools(target: CudaTarget) -> None:
    """Check that there is an nvcc for its architectures."""
    check_nvcc(target)


def write(
    problem: Problem,
    target: CudaTarget,
    choice: Choice,
    entry_points: EntryPoints,
    path: str | os.PathLike[str],
    apart: bool,
    next_lines: int,
) -> Written:
    """Write a kernel's library; its filter is not packed."""
    definition, scheduled = schedule(problem, target, choice)
    kernel = to_source(scheduled.mod, definition, target)
    link_cuda(kernel, problem, target, path)
    return Written(None, kernel.workspace_bytes, None)


def show(stage: str, problem: Problem, target: CudaTarget, choice: Choice) -> str:
    """Return a stage of a GPU kernel."""
    definition, scheduled = schedule(problem, target, choice)
    if stage == "tir":
        if scheduled_tile(scheduled.mod, problem, target) is not None:
            raise TvmconvError(
                f"{choice.algorithm} has no stage tir: its kernel is handwritten CUDA C++; see --stage cuda"
            )
        return str(lower_cuda(scheduled.mod, definition, target).script())
    source = to_source(scheduled.mod, definition, target).source
    return source if stage == "cuda" else disassemble(compile_fatbin(source, target))


def module(scheduled: tvm.IRModule, definition: Definition, target: CudaTarget) -> NoReturn:
    """Raise TargetError: kernels for GPUs are called otherwise."""
    raise TargetError(f"modules are built for CPUs, and {target.name} is a GPU; `tvmconv tune` builds for it")
