"""The algorithms for GPUs: ways to compute a Problem, which problems each covers, and where its schedules are."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from .algorithm import Algorithm, always
from .cuda_target import CudaTarget
from .definitions.constant import covers_constant, covers_data
from .definitions.cuda_cost import direct_cycles, fma_cycles, tensorcore_cycles
from .problem import Problem

# Half of a fragment's columns.
LEAST_COLUMNS = 8

if TYPE_CHECKING:
    from .definitions.definition import Definition


def _define_direct(problem: Problem, target: CudaTarget) -> Definition:
    from .definitions.cuda_direct import define_cuda_direct

    return define_cuda_direct(problem)


def _covers_tensorcore(problem: Problem, target: CudaTarget) -> str | None:
    if problem.dtype == "f32":
        return "tensor cores multiply f32 only as TF32"
    return _covers_fragments(problem, target)


def _covers_tf32(problem: Problem, target: CudaTarget) -> str | None:
    return _covers_fragments(problem, target) if problem.dtype == "f32" else f"{problem.dtype} is not f32"


def _covers_fragments(problem: Problem, target: CudaTarget) -> str | None:
    if problem.out_channels // problem.groups < LEAST_COLUMNS:
        return f"tiles of 16 output channels per group would be emptier than half; it takes {LEAST_COLUMNS} or more"
    return covers_data(problem, target)


def _define_gemm(problem: Problem, target: CudaTarget) -> Definition:
    from .definitions.cuda_gemm import define_gemm

    return define_gemm(problem, target)


def _define_fma(problem: Problem, target: CudaTarget) -> Definition:
    from .definitions.cuda_fma import define_fma

    return define_fma(problem, target)


def _define_constant(problem: Problem, target: CudaTarget) -> Definition:
    from .definitions.cuda_window import define_cuda_constant

    return define_cuda_constant(problem)


def _free(problem: Problem, target: CudaTarget) -> float:
    return 0.0


_tensorcore = partial(Algorithm, schedules="cuda_tensorcore", cycles=tensorcore_cycles, kind="cuda")
_exact = partial(Algorithm, version=1, numerical_class="exact", prefers=always, kind="cuda")

# Of those that prefer a problem and cost the same by estimate, the first is the default.
CUDA_ALGORITHMS: tuple[Algorithm, ...] = (
    _tensorcore("tensorcore", 1, "exact", _covers_tensorcore, always, _define_gemm),
    _tensorcore("tensorcore_tf32", 1, "tf32", _covers_tf32, always, _define_gemm),
    _exact("cuda_fma", covers=covers_data, define=_define_fma, schedules="cuda_fma", cycles=fma_cycles),
    _exact("cuda_direct", covers=covers_data, define=_define_direct, schedules="cuda_direct", cycles=direct_cycles),
    _exact("cuda_constant", covers=covers_constant, define=_define_constant, schedules="cuda_constant", cycles=_free),
)
