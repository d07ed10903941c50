"""The kernels that the tests with a GPU call: for each problem, one of every algorithm that covers it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from toys import entry

from tvmconv import algorithms, fills
from tvmconv.bundle import Bundle, BundleTarget
from tvmconv.compiler import Choice, CompiledKernel, compile_problem
from tvmconv.cuda import survey
from tvmconv.cuda_kernel import CudaKernel
from tvmconv.errors import ToolchainError
from tvmconv.problem import DTYPES, Problem
from tvmconv.signature import parse_signature
from tvmconv.target import Target
from tvmconv.workers import run_all

# Every operation, rank, layout, and kind of window that algorithms tell apart; each is tested in all three types.
SHAPES = [
    "conv2d-n1-i64x14x14-o64x14x14-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-{}",
    "conv2d-n1-i64x14x14-o64x14x14-k3x3-s1x1-d1x1-p1x1_1x1-g1-NCX-OIX-{}-bias",
    "conv2d-n2-i48x13x13-o80x13x13-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-{}-bias",
    "conv2d-n1-i96x14x14-o40x7x7-k1x1-s2x2-d1x1-p0x0_0x0-g1-NXC-XIO-{}",
    "conv2d-n3-i3x31x29-o16x16x15-k7x7-s2x2-d1x1-p3x3_3x3-g1-NXC-XIO-{}-bias",
    "conv2d-n1-i3x20x20-o32x18x18-k3x3-s1x1-d1x1-p0x0_0x0-g1-NCX-OIX-{}",
    "conv2d-n1-i32x17x17-o32x17x17-k3x3-s1x1-d6x6-p6x6_6x6-g1-NXC-OIX-{}",
    "conv2d-n1-i30x9x9-o32x8x8-k3x3-s2x2-d1x1-p4x4_5x5-g2-NXC-XIO-{}",
    "conv2d-n1-i32x13x20-o32x11x20-k5x3-s1x1-d1x1-p1x1_1x1-g32-NXC-XIO-{}",
    "conv2d-n1-i32x13x13-o32x7x7-k3x3-s2x2-d1x1-p1x1_1x1-g32-NCX-OIX-{}-bias",
    "conv2d-n1-i128x14x14-o128x14x14-k3x3-s1x1-d1x1-p1x1_1x1-g32-NXC-XIO-{}",
    "conv2d-n1-i32x7x7-o21x7x7-k1x1-s1x1-d1x1-p0x0_0x0-g1-NCX-XIO-{}-bias",
    "conv1d-n2-i16x60-o32x60-k5-s1-d3-p6_6-g1-NXC-XIO-{}",
    "conv1d-n1-i64x1000-o1x334-k9-s3-d1-p4_4-g1-NCX-OIX-{}-bias",
    "conv3d-n1-i8x4x6x6-o16x4x6x6-k3x3x3-s1x1x1-d1x1x1-p1x1x1_1x1x1-g1-NXC-XIO-{}",
    "conv3d-n1-i16x5x6x7-o16x3x3x4-k3x3x3-s2x2x2-d1x1x1-p1x1x1_1x1x1-g1-NCX-OIX-{}",
    "backprop2d-n1-i32x7x7-o24x14x14-k3x3-s2x2-d1x1-p1x1_0x0-g1-NXC-XIO-{}-bias",
    "backprop2d-n1-i16x9x16-o4x18x32-k4x4-s2x2-d1x1-p1x1_1x1-g2-NCX-OIX-{}-bias",
    "backprop2d-n2-i64x8x8-o64x16x16-k4x4-s2x2-d1x1-p1x1_1x1-g1-NXC-XIO-{}",
    "backprop2d-n1-i24x6x6-o24x13x13-k4x4-s2x2-d1x1-p0x0_1x1-g24-NXC-XIO-{}",
    "backprop2d-n1-i8x6x6-o4x25x25-k1x1-s5x5-d1x1-p0x0_1x1-g1-NXC-XIO-{}",
    "backprop1d-n1-i64x50-o32x400-k16-s8-d1-p4_4-g1-NXC-XIO-{}",
    "backprop3d-n1-i16x3x4x5-o8x6x8x10-k2x2x2-s2x2x2-d1x1x1-p0x0x0_0x0x0-g1-NXC-XIO-{}",
    "conv2d-n1-i0x4x4-o8x4x4-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-{}-bias",
    "conv2d-n0-i8x4x4-o8x4x4-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-{}",
]
# The kernel that tests of streams, graphs and arrays call.
SOME = "conv2d-n2-i48x13x13-o80x13x13-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-{}-bias"


@dataclass(frozen=True)
class Job:
    """Compile one algorithm's default schedule of a problem."""

    signature: str
    algorithm: str
    target: str
    path: str

    def __str__(self) -> str:
        return f"{self.algorithm} of {self.signature} for {self.target}"


def compile_job(job: Job) -> CompiledKernel:
    """Do a job, in a worker."""
    return compile_problem(
        parse_signature(job.signature), Target.parse(job.target), job.path, choice=Choice(job.algorithm)
    )


def why_not() -> str:
    """Return why the tests cannot run here; empty if they can."""
    found = survey()
    if found.obstacle:
        return found.obstacle
    if find_spec("torch") is None:
        return "PyTorch is not installed"
    import torch

    from tvmconv.nvcc import check_nvcc

    if not torch.cuda.is_available():
        return f"PyTorch {torch.__version__} cannot use the GPU"
    try:
        check_nvcc(target_of_gpu())  # type: ignore[arg-type]
    except ToolchainError as error:
        return str(error)
    return ""


def target_of_gpu() -> Target:
    """Return the target of the first GPU."""
    return Target.parse(f"cuda:sm_{survey().gpus[0].architecture}")


def cases(target: Target, shapes: Sequence[str] = SHAPES) -> list[tuple[str, str]]:
    """Return (signature, algorithm) for each shape in each type and each algorithm that covers it."""
    signatures = dict.fromkeys(shape.format(dtype) for shape in shapes for dtype in DTYPES)
    return [
        (signature, algorithm.name)
        for signature in signatures
        for algorithm in algorithms.applicable(parse_signature(signature), target)
    ]


class Kernels:
    """Compiled kernels, by signature and algorithm.

    Parameters
    ----------
    folder
        Where their libraries go.
    target
        Of another machine than this, or None.
    shapes
        As `SHAPES`.
    """

    def __init__(self, folder: Path, target: Target | None = None, shapes: Sequence[str] = SHAPES) -> None:
        target = target or target_of_gpu()
        jobs = [
            Job(signature, algorithm, target.name, str(folder / f"{number}.so"))
            for number, (signature, algorithm) in enumerate(cases(target, shapes))
        ]
        cores = len(os.sched_getaffinity(0))
        self.jobs = {(job.signature, job.algorithm): job for job in jobs}
        self.compiled = {
            (job.signature, job.algorithm): made for job, made in run_all(compile_job, jobs, jobs=cores, threads=1)
        }
        self._folder, self._target = folder, target

    def of(self, signature: str, algorithm: str | None = None) -> CudaKernel:
        """Return a kernel; of the first algorithm, which is the default, if none is named."""
        key = next(key for key in self.jobs if key[0] == signature and algorithm in (key[1], None))
        made, file = self.compiled[key], Path(self.jobs[key].path)
        described = entry(
            signature, self._target.name, hashlib.sha256(file.read_bytes()).hexdigest(), file=file.name,
            algorithm=made.algorithm, symbol=made.symbol, workspace_bytes=made.workspace_bytes,
            numerical_class=made.numerical_class,
        )  # fmt: skip
        targets = {self._target.name: BundleTarget("cuda", self._target.features)}
        return CudaKernel(Bundle(self._folder, "0.1.0", "0.27.0.post1", None, targets, (described,)), described)

    def copy(self, signatures: Sequence[str], folder: Path) -> None:
        """Copy the libraries for some signatures to a folder, with what gpu/sanitized.py reads about them."""
        described = []
        for key, job in self.jobs.items():
            if job.signature in signatures:
                shutil.copy(job.path, folder)
                described.append((Path(job.path).name, job.signature, self.compiled[key].numerical_class))
        (folder / "kernels.json").write_text(json.dumps(described))


def to_torch(array: np.ndarray | None, device: str = "cuda") -> Any:
    """Return a NumPy array as a tensor on a GPU."""
    import torch

    if array is None:
        return None
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16).to(device)
    return torch.from_numpy(array.copy()).to(device)


def to_numpy(tensor: Any, dtype: str) -> np.ndarray:
    """Return a tensor as a NumPy array of the type of a problem."""
    return np.asarray(tensor.detach().cpu().float().numpy().astype(fills.numpy_dtype(dtype)))


def case(problem: Problem, device: str = "cuda", seed: int = 0) -> tuple[list[Any], np.ndarray]:
    """Return tensors with an exact fill, and the one right answer."""
    arrays, expected = fills.exact_case(problem, seed)
    return [to_torch(array, device) for array in arrays], expected
