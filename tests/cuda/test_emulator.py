"""The emulator runs right kernels, and says what is wrong with others."""

from __future__ import annotations

import numpy as np
import pytest
from emulator import EmulationError, run
from ptx import translated

from tvmconv import fills
from tvmconv.lowering.cuda.lowering import Argument, CudaSource, Launch
from tvmconv.problem import Problem

THREADS = 64
# Pointwise with one channel in and out: output[i] = data[i] * filter[0] is what the kernels below should compute.
PROBLEM = Problem("convolution", 1, 1, (THREADS,), 1, (THREADS,), (1,), (1,), (1,), (0,), (0,))
ARRAYS = fills.Arrays(np.arange(THREADS, dtype=np.float32).reshape(1, -1, 1), np.full((1, 1, 1), 2, np.float32), None)
ARGUMENTS = (Argument("data"), Argument("filter"), Argument("output"))
SIGNATURE = 'extern "C" __global__ void __launch_bounds__(64) kernel(float* data, float* filter, float* output)'
REVERSED = """
  int i = threadIdx.x;
  tile[63 - i] = data[63 - i];
  {barrier}
  output[i] = tile[i] * filter[0];
"""
COPIED = """
  extern __shared__ uchar tile[];
  int i = threadIdx.x;
  copy_async(&((float*)tile)[i], data + i, 4);
  commit_copies();
  wait_copies({pending});
  {wait_for_all}
  __syncthreads();
  output[i] = ((float*)tile)[63 - i] * filter[0];
"""


def emulate(body: str, shared_bytes: int = 0) -> np.ndarray:
    source = CudaSource(
        SIGNATURE + "{" + body + "}", (Launch("kernel", (1, 1, 1), (64, 1, 1), shared_bytes, ARGUMENTS),), 0
    )
    return run(source, PROBLEM, ARRAYS).ravel()


def test_threads_meet_at_barriers() -> None:
    body = "__shared__ float tile[64];" + REVERSED.format(barrier="__syncthreads();")
    np.testing.assert_array_equal(emulate(body), 2 * np.arange(64))


def test_asynchronous_copies_arrive() -> None:
    body = COPIED.format(pending=0, wait_for_all="")
    np.testing.assert_array_equal(emulate(body, 256), 2 * np.arange(63, -1, -1))


def test_a_missing_barrier_shows() -> None:
    body = "__shared__ float tile[64]; int j = threadIdx.x ^ 1; tile[threadIdx.x] = data[threadIdx.x];"
    with pytest.raises(EmulationError, match="a barrier is missing"):
        emulate(body + "output[threadIdx.x] = tile[j] * filter[0];")


def test_a_missing_wait_shows() -> None:
    body = COPIED.format(pending=1, wait_for_all="")
    with pytest.raises(EmulationError, match="without waiting"):
        emulate(body, 256)
    late = COPIED.format(pending=1, wait_for_all="") + "wait_copies(0);"
    with pytest.raises(EmulationError, match="the order of threads"):
        emulate(late, 256)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("output[threadIdx.x] = data[threadIdx.x + 64];", "outside of its arrays"),
        ("output[threadIdx.x] = data[(int)threadIdx.x - 1];", "outside of its arrays"),
        ("output[threadIdx.x + 1] = 0;", "outside of its arrays|beside the array"),
        ("*(float2*)(output + threadIdx.x) = make_float2(0, 0);", "misaligned"),
        ("if (threadIdx.x < 7) { __syncthreads(); }", "not all threads reach this barrier"),
        ("float sum[4]; sum[threadIdx.x % 5] = 0; output[0] = sum[1];", "out of bounds"),
        ("extern __shared__ uchar tile[]; tile[256] = 0;", "beyond what the launch asks for"),
    ],
)
def test_what_a_gpu_would_not_forgive_is_refused(body: str, message: str) -> None:
    with pytest.raises(EmulationError, match=message):
        emulate(body, 256)


def test_inline_ptx_becomes_calls() -> None:
    text = 'asm volatile("mbarrier.init.shared::cta.b64 [%1], %0;" ::"r"(n), "r"(at(a, b)) : "memory"); return;'
    assert translated(text) == "mbarrier_init((at(a, b)), (n)); return;"
    both = 'asm volatile("fence.mbarrier_init.release.cluster;\\n\\tfence.proxy.async.shared::cta;" ::: "memory");'
    assert translated(both) == "fence_mbarrier_init(); fence_proxy_async();"


@pytest.mark.parametrize(
    "text",
    ["mbarrier.init.shared::cta.b64 %0, %1;", "wgmma.fence.sync;", "bar.sync 1;", "wgmma.fence.sync.aligned; trap;"],
)
def test_unknown_ptx_is_refused(text: str) -> None:
    with pytest.raises(AssertionError, match="knows no instruction"):
        translated(f'asm volatile("{text}" ::"r"(a), "r"(b));')
