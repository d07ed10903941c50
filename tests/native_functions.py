"""The operators between kernels (tvmconv/torch/native.py) of a library that is built for a test."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tvmconv.lowering.compiler import compile_problem
from tvmconv.runtime.addressed import AddressedKernel
from tvmconv.signature import parse_signature
from tvmconv.targets.target import Target
from tvmconv.torch import native

SMALL = parse_signature("conv1d-n1-i16x4-o16x4-k1-s1-d1-p0_0-g1-NXC-XIO-f32")


def offer_functions(target: str, folder: Path) -> None:
    """Take the functions of a library for a CPU, where there are none yet."""
    compile_problem(SMALL, Target.parse(target), folder / "kernel.so")
    floats = np.dtype(np.float32)
    arrays = [((1, 4, 16), floats), ((1, 16, 16), floats), ((1, 4, 16), floats)]
    native.offer(AddressedKernel(str(folder / "kernel.so"), ("tvmconv_kernel_with_openmp",), arrays))
    assert native._FUNCTIONS
