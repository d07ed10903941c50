"""Problems lowered to CUDA C++ and a table of launches, and compiled by nvcc."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from cuda_kernels import cuda_source, needs_nvcc
from toys import run_python

from tvmconv.lowering.compiler import Choice
from tvmconv.lowering.cuda.lowering import Argument
from tvmconv.lowering.cuda.nvcc import compile_fatbin
from tvmconv.targets.cuda import CudaTarget

SM_90 = CudaTarget.parse("cuda:sm_90")
DIRECT = "conv2d-n1-i8x9x9-o16x9x9-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-{dtype}-bias"
BACKPROP = "backprop2d-n1-i8x5x5-o4x15x15-k3x3-s3x3-d1x1-p0x0_0x0-g1-NXC-XIO-f32-bias"
HOLES = "backprop1d-n1-i16x10-o16x28-k1-s3-d1-p0_0-g1-NXC-XIO-f32-bias"
CONSTANT = "conv2d-n1-i0x4x4-o8x4x4-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32-bias"
EMPTY = "conv2d-n0-i4x4x4-o8x4x4-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32"


@pytest.mark.parametrize(("dtype", "type_name"), [("f32", "float"), ("f16", "half"), ("bf16", "nv_bfloat16")])
def test_every_type_is_native(dtype: str, type_name: str) -> None:
    lowered = cuda_source(DIRECT.format(dtype=dtype), SM_90, Choice("cuda_direct"))
    (launch,) = lowered.launches
    assert {argument.name for argument in launch.arguments} == {"data", "filter", "bias", "output"}
    assert f"{launch.function}({type_name}* " in lowered.source
    assert launch.grid[0] * launch.block[0] >= 9 * 9 * 16
    assert lowered.workspace_bytes == 0 and launch.shared_bytes == 0


def test_a_launch_for_each_part_of_the_output() -> None:
    filled, summed = cuda_source(HOLES, SM_90).launches
    assert filled.function != summed.function
    assert filled.arguments == (Argument("bias"), Argument("output"))
    assert Argument("data") in summed.arguments


def test_nothing_is_launched_for_an_empty_output() -> None:
    assert cuda_source(EMPTY, SM_90).launches == ()


def test_a_driver_changes_nothing(tmp_path: Path) -> None:
    # Where there is one, TVM loads its CUDA runtime, and would have that compile what it generates.
    functions = (
        "cuDeviceGetName", "cuFuncSetAttribute", "cuGetErrorName", "cuGetErrorString", "cuLaunchKernelEx",
        "cuModuleGetFunction", "cuModuleLoadData", "cuModuleUnload", "cuTensorMapEncodeTiled",
    )  # fmt: skip
    (tmp_path / "driver.c").write_text("".join(f"int {name}(void) {{ return 100; }}\n" for name in functions))
    command = ["cc", "-shared", "-fPIC", "-o", tmp_path / "libcuda.so.1", tmp_path / "driver.c"]
    subprocess.run(command, check=True)
    signature = DIRECT.format(dtype="bf16")
    script = "import sys; sys.path[:0] = sys.argv[2:]\n"
    script += "import tvm; from cuda_kernels import cuda_source; from tvmconv.targets.cuda import CudaTarget\n"
    script += "print(tvm.runtime.enabled('cuda'), cuda_source(sys.argv[1], CudaTarget.parse('cuda:sm_90')).source)"
    printed = run_python(script, signature, Path(__file__).parents[1], LD_LIBRARY_PATH=str(tmp_path))
    enabled, _, source = printed.partition(" ")
    if enabled != "True":
        pytest.skip("TVM's CUDA runtime cannot be loaded: there is no libcudart")
    assert source.strip() == cuda_source(signature, SM_90).source.strip()


@needs_nvcc
@pytest.mark.parametrize(
    "signature", [*(DIRECT.format(dtype=dtype) for dtype in ("f32", "f16", "bf16")), BACKPROP, HOLES, CONSTANT, EMPTY]
)
def test_compiles(signature: str) -> None:
    assert compile_fatbin(cuda_source(signature, SM_90).source, SM_90)
