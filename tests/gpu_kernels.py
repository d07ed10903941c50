"""The kernels that the tests with a GPU call: for each problem, one of every algorithm that covers it.

They are compiled where the tests run, or, where there is no compiler, before, into a folder that `write_kernels` fills.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from toys import entry

import tvmconv
from tvmconv import fills
from tvmconv.algorithms import table as algorithms
from tvmconv.errors import ToolchainError
from tvmconv.lowering.cuda.nvcc import check_nvcc
from tvmconv.problem import DTYPES, Problem
from tvmconv.runtime.bundle import Bundle, BundleTarget
from tvmconv.runtime.cuda.gpus import survey
from tvmconv.runtime.cuda.kernel import CudaKernel
from tvmconv.signature import parse_signature
from tvmconv.support.sandbox import run_all
from tvmconv.targets.cuda import SPECIFIC
from tvmconv.targets.target import Target

# What `write_kernels` fills a folder with, and what `sanitized.py` reads.
INDEX, BUNDLE = "kernels.json", "both.bundle"
# Every operation, rank, layout, and kind of window that algorithms tell apart; each is tested in all three types.
SHAPES = [
    "conv2d-n1-i64x14x14-o64x14x14-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-{}",
    "conv2d-n1-i64x14x14-o64x14x14-k3x3-s1x1-d1x1-p1x1_1x1-g1-NCX-OIX-{}-bias",
    "conv2d-n2-i48x13x13-o80x13x13-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-{}-bias",
    "conv2d-n16-i72x56x56-o136x56x56-k1x1-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-{}-bias",  # several tiles of wgmma a block
    "conv2d-n1-i96x14x14-o40x7x7-k1x1-s2x2-d1x1-p0x0_0x0-g1-NXC-XIO-{}",
    "conv2d-n3-i3x31x29-o16x16x15-k7x7-s2x2-d1x1-p3x3_3x3-g1-NXC-XIO-{}-bias",
    "conv2d-n1-i3x20x20-o32x18x18-k3x3-s1x1-d1x1-p0x0_0x0-g1-NCX-OIX-{}",
    "conv2d-n4-i48x56x56-o72x56x56-k3x3-s1x1-d1x1-p1x1_1x1-g1-NCX-OIX-{}-bias",
    "conv2d-n5-i72x28x28-o80x28x28-k1x1-s1x1-d1x1-p0x0_0x0-g1-NCX-OIX-{}-bias-add",
    "conv2d-n2-i3x64x64-o24x4x4-k16x16-s16x16-d1x1-p0x0_0x0-g1-NXC-XIO-{}-bias",
    "conv2d-n1-i32x17x17-o32x17x17-k3x3-s1x1-d6x6-p6x6_6x6-g1-NXC-OIX-{}",
    "conv2d-n1-i30x9x9-o32x8x8-k3x3-s2x2-d1x1-p4x4_5x5-g2-NXC-XIO-{}",
    "conv2d-n1-i32x13x20-o32x11x20-k5x3-s1x1-d1x1-p1x1_1x1-g32-NXC-XIO-{}",
    "conv2d-n1-i32x13x13-o32x7x7-k3x3-s2x2-d1x1-p1x1_1x1-g32-NCX-OIX-{}-bias",
    "conv2d-n1-i128x14x14-o128x14x14-k3x3-s1x1-d1x1-p1x1_1x1-g32-NXC-XIO-{}",
    "conv2d-n16-i256x28x28-o256x28x28-k3x3-s1x1-d1x1-p1x1_1x1-g32-NXC-XIO-{}-bias-relu",  # several groups a tile of wgmma
    "conv2d-n2-i120x28x28-o240x14x14-k3x3-s2x2-d1x1-p1x1_1x1-g5-NXC-XIO-{}-bias-add",
    "conv2d-n2-i96x14x14-o96x14x14-k3x3-s1x1-d1x1-p1x1_1x1-g3-NXC-XIO-{}-bias",
    "conv2d-n1-i32x7x7-o21x7x7-k1x1-s1x1-d1x1-p0x0_0x0-g1-NCX-XIO-{}-bias",
    "conv1d-n2-i16x60-o32x60-k5-s1-d3-p6_6-g1-NXC-XIO-{}",
    "conv1d-n1-i64x1000-o1x334-k9-s3-d1-p4_4-g1-NCX-OIX-{}-bias",
    "conv3d-n1-i8x4x6x6-o16x4x6x6-k3x3x3-s1x1x1-d1x1x1-p1x1x1_1x1x1-g1-NXC-XIO-{}",
    "conv3d-n1-i16x5x6x7-o16x3x3x4-k3x3x3-s2x2x2-d1x1x1-p1x1x1_1x1x1-g1-NCX-OIX-{}",
    "conv3d-n1-i32x3x9x10-o48x3x9x10-k3x3x3-s1x1x1-d1x1x1-p2x1x1_0x1x1-g1-NXC-XIO-{}-bias",
    "backprop2d-n1-i32x7x7-o24x14x14-k3x3-s2x2-d1x1-p1x1_0x0-g1-NXC-XIO-{}-bias",
    "backprop2d-n1-i16x9x16-o4x18x32-k4x4-s2x2-d1x1-p1x1_1x1-g2-NCX-OIX-{}-bias",
    "backprop2d-n2-i20x9x16-o12x18x32-k4x4-s2x2-d1x1-p1x1_1x1-g1-NCX-OIX-{}-bias",
    "backprop2d-n2-i64x8x8-o64x16x16-k4x4-s2x2-d1x1-p1x1_1x1-g1-NXC-XIO-{}",
    "backprop2d-n1-i24x6x6-o24x13x13-k4x4-s2x2-d1x1-p0x0_1x1-g24-NXC-XIO-{}",
    "backprop2d-n1-i8x6x6-o4x25x25-k1x1-s5x5-d1x1-p0x0_1x1-g1-NXC-XIO-{}",
    "backprop1d-n1-i64x50-o32x400-k16-s8-d1-p4_4-g1-NXC-XIO-{}",
    "backprop2d-n16-i72x28x28-o136x56x56-k5x5-s2x2-d1x1-p2x2_1x1-g1-NXC-XIO-{}-bias",  # several tiles of wgmma a block
    "backprop2d-n1-i8x6x6-o8x18x20-k1x2-s3x3-d1x1-p0x0_0x0-g1-NXC-XIO-{}-bias-add-relu",  # phases without taps
    "backprop2d-n32-i104x1x1-o16x4x4-k4x4-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-{}-bias",
    "backprop3d-n1-i16x3x4x5-o8x6x8x10-k2x2x2-s2x2x2-d1x1x1-p0x0x0_0x0x0-g1-NXC-XIO-{}",
    # Every step of an epilogue; and one for outputs that no tap meets.
    "conv2d-n2-i48x13x13-o80x13x13-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-{}-bias-scale-silu-add-relu",
    "conv2d-n1-i64x14x14-o64x14x14-k3x3-s1x1-d1x1-p1x1_1x1-g1-NCX-OIX-{}-gelu-add-prelu-gelu_tanh-leaky_0.1",
    "conv2d-n1-i96x14x14-o40x7x7-k1x1-s2x2-d1x1-p0x0_0x0-g1-NXC-XIO-{}-clip_-1_2.5-sigmoid-hardsigmoid_0.2_0.5-add",
    "backprop2d-n1-i8x6x6-o4x25x25-k1x1-s5x5-d1x1-p0x0_1x1-g1-NXC-XIO-{}-bias-add-elu_1.5-tanh-hardswish",
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


@dataclass(frozen=True)
class Made:
    """A compiled kernel; `file` is its library's name in the folder of all."""

    signature: str
    algorithm: str
    target: str
    file: str
    symbol: str
    workspace_bytes: int
    numerical_class: str


def compile_job(job: Job) -> Made:
    """Do a job, in a worker."""
    from tvmconv.lowering.compiler import Choice, compile_problem  # imports TVM

    problem, target = parse_signature(job.signature), Target.parse(job.target)
    made = compile_problem(problem, target, job.path, choice=Choice(job.algorithm))
    of_library = (made.symbol, made.workspace_bytes, made.numerical_class)
    return Made(job.signature, job.algorithm, job.target, Path(job.path).name, *of_library)


def why_not(compiling: bool) -> str:
    """Return why the tests cannot run here, where their kernels are still to be compiled or not; empty if they can."""
    found = survey()
    if found.obstacle:
        return found.obstacle
    if find_spec("torch") is None:
        return "PyTorch is not installed"
    import torch

    if not torch.cuda.is_available():
        return f"PyTorch {torch.__version__} cannot use the GPU"
    if not compiling:
        return ""
    if find_spec("tvm") is None:
        return "TVM is not installed, which compiles the kernels; bring them along with --kernels"
    try:
        check_nvcc(target_of_gpu())  # type: ignore[arg-type]
    except ToolchainError as error:
        return str(error)
    return ""


def target_of_gpu() -> Target:
    """Return the target of the first GPU."""
    return Target.parse(f"cuda:sm_{survey().gpus[0].architecture}")


def cases(target: Target, shapes: Sequence[str] = SHAPES) -> dict[tuple[str, str], Target]:
    """Return (signature, algorithm) for each shape in each type and each algorithm that covers it, and for which target.

    Beside `target` that is the one with the instructions that only GPUs of its architecture have.
    """
    targets = [target, *([Target.parse(f"cuda:{SPECIFIC}")] if target.features == (SPECIFIC[:-1],) else [])]
    found: dict[tuple[str, str], Target] = {}
    for signature in dict.fromkeys(shape.format(dtype) for shape in shapes for dtype in DTYPES):
        for each in targets:
            for algorithm in algorithms.applicable(parse_signature(signature), each):
                found.setdefault((signature, algorithm.name), each)
    return found


class Kernels:
    """Compiled kernels, by signature and algorithm.

    Parameters
    ----------
    folder
        Where their libraries are, with an index.

    Attributes
    ----------
    made
        The kernels, in the order of `cases`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        described = [Made(**each) for each in json.loads((folder / INDEX).read_text())]
        self.made = {(each.signature, each.algorithm): each for each in described}

    def of(self, signature: str, algorithm: str | None = None) -> CudaKernel:
        """Return a kernel; of the first algorithm, which is the default, if none is named."""
        made = next(made for key, made in self.made.items() if key[0] == signature and algorithm in (key[1], None))
        target = Target.parse(made.target)
        digest = hashlib.sha256((self.folder / made.file).read_bytes()).hexdigest()
        what = {name: value for name, value in asdict(made).items() if name not in ("signature", "target")}
        described = entry(signature, made.target, digest, **what)
        targets = {made.target: BundleTarget("cuda", target.features)}
        return CudaKernel(Bundle(self.folder, "0.1.0", "0.27.0.post1", None, targets, (described,)), described)

    def copy(self, signatures: Sequence[str], folder: Path) -> None:
        """Copy the libraries for some signatures to a folder, with the index of them."""
        chosen = [made for made in self.made.values() if made.signature in signatures]
        for made in chosen:
            shutil.copy(self.folder / made.file, folder)
        _write_index(chosen, folder)


def compile_kernels(folder: Path, target: Target, shapes: Sequence[str] = SHAPES) -> Kernels:
    """Compile a kernel for every one of `cases` into the folder, on all cores."""
    jobs = [
        Job(signature, algorithm, each.name, str(folder / f"{number}.so"))
        for number, ((signature, algorithm), each) in enumerate(cases(target, shapes).items())
    ]
    made = dict(run_all(compile_job, jobs, jobs=len(os.sched_getaffinity(0)), threads=1))
    _write_index([made[job] for job in jobs], folder)
    return Kernels(folder)


def write_kernels(folder: Path, target: Target, shapes: Sequence[str] = SHAPES, cpu: str = "x86-64-v3") -> None:
    """Fill a folder for tests without a compiler: the kernels, and a bundle for CPUs and GPUs."""
    compile_kernels(folder, target, shapes)
    build_both(folder, target, cpu)


def build_both(folder: Path, target: Target, cpu: str = "host") -> Path:
    """Build a bundle in the folder with kernels of `SOME` for a CPU and for the target; return its path."""
    problems = [parse_signature(SOME.format(dtype)) for dtype in DTYPES]
    return tvmconv.build(problems, folder / BUNDLE, [cpu, target.name])


def _write_index(made: Sequence[Made], folder: Path) -> None:
    (folder / INDEX).write_text(json.dumps([asdict(each) for each in made], indent=1))


def to_torch(array: np.ndarray, device: str = "cuda") -> Any:
    """Return a NumPy array as a tensor on a GPU."""
    import torch

    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16).to(device)
    return torch.from_numpy(array.copy()).to(device)


def to_numpy(tensor: Any, dtype: str) -> np.ndarray:
    """Return a tensor as a NumPy array of the type of a problem."""
    return np.asarray(tensor.detach().cpu().float().numpy().astype(fills.numpy_dtype(dtype)))


def case(problem: Problem, device: str = "cuda", seed: int = 0) -> tuple[dict[str, Any], np.ndarray]:
    """Return tensors with an exact fill, by name and in the order in which kernels take them, and the right answer."""
    arrays, expected = fills.exact_case(problem, seed)
    return {name: to_torch(array, device) for name, array in arrays.given().items()}, expected
