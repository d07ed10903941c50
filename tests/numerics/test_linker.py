"""Linked libraries: self-contained, reproducible, and with a launcher that keeps its promises."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tvm
import tvm_ffi
from toys import run_python
from tvm import te
from tvm.script import tirx as T
from tvm_ffi.libinfo import find_dlpack_include_path, find_include_path

from tvmconv.errors import ToolchainError
from tvmconv.lowering.common.entry_points import SYMBOL
from tvmconv.lowering.cpu import linker
from tvmconv.support.toolchain import run_compiler

TARGET = {"kind": "llvm", "mcpu": "x86-64-v3"}
SIZE = 64


@T.prim_func(s_tir=True)
def _checked(data: T.Buffer((SIZE,), "float32"), output: T.Buffer((SIZE,), "float32")):
    T.func_attr({"global_symbol": "tvmconv_kernel"})
    for i in T.parallel(SIZE):
        with T.sblock("add"):
            v = T.axis.spatial(SIZE, i)
            assert data[v] >= T.float32(0), ("ValueError", ["an element is negative"])
            output[v] = data[v] + T.float32(1)


def _reversed_sum(size: int) -> tvm.IRModule:
    """Return a kernel with a parallel loop over a workspace of `size` elements, output 4 * data."""
    data = te.placeholder((size,), "float32", name="data")
    twice = te.compute((size,), lambda i: data[i] * 2, name="twice")
    output = te.compute((size,), lambda i: twice[size - 1 - i] + twice[i], name="output")
    func = te.create_prim_func([data, output]).with_attr("global_symbol", SYMBOL)
    sch = tvm.s_tir.Schedule(tvm.IRModule({SYMBOL: func}))
    sch.work_on(SYMBOL)
    for name in ("twice", "output"):
        sch.parallel(sch.get_loops(sch.get_sblock(name))[0])
    return sch.mod


def _aligned(size: int, value: float = 0.0) -> np.ndarray:
    """Return an array aligned to 64 bytes, which TVM's own pipeline asks for."""
    raw = np.empty(4 * size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    array = raw[start : start + 4 * size].view(np.float32)
    array[:] = value
    return array


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("linked") / "checked.so"
    linker.link(tvm.compile(tvm.IRModule({SYMBOL: _checked}), TARGET), path)
    return path


def _readelf(option: str, path: Path) -> str:
    return subprocess.run(["readelf", "--wide", option, path], capture_output=True, text=True, check=True).stdout


def test_needs_only_libc(checked: Path) -> None:
    needed = [line.split("[")[1].rstrip("]") for line in _readelf("-d", checked).splitlines() if "(NEEDED)" in line]
    assert needed
    assert all(name.startswith(("libc.", "ld-linux")) for name in needed), needed


def test_exports_only_what_is_called(checked: Path) -> None:
    symbols = [line.split() for line in _readelf("--dyn-syms", checked).splitlines()]
    exported = {fields[-1] for fields in symbols if len(fields) == 8 and fields[6].isdigit()}
    assert {"__tvm_ffi_tvmconv_kernel", "__tvm_ffi_tvmconv_kernel_with_threads"} <= exported
    assert all(name.startswith("__tvm_ffi_") for name in exported), exported


def test_is_small_and_has_no_paths(checked: Path) -> None:
    content = checked.read_bytes()
    assert len(content) < 64 * 1024
    assert b"/tmp" not in content and str(checked.parent).encode() not in content


def test_same_bytes_from_another_process_and_folder(checked: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "another folder"
    elsewhere.mkdir()
    command = "import sys; sys.modules['torch'] = None; from pathlib import Path; import test_linker as t; "
    command += "t.linker.link(t.tvm.compile(t.tvm.IRModule({t.SYMBOL: t._checked}), t.TARGET), Path(sys.argv[1]))"
    here = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": f"{here}:{here.parent}"}
    subprocess.run([sys.executable, "-c", command, elsewhere / "a.so"], env=environment, check=True)
    assert (elsewhere / "a.so").read_bytes() == checked.read_bytes()
    assert [path.name for path in elsewhere.iterdir()] == ["a.so"]  # nothing temporary stays


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("negative", [[0], [SIZE - 1], range(SIZE)], ids=["first", "last", "all"])
def test_error_in_a_parallel_task_reaches_the_caller(checked: Path, threads: int, negative: list[int]) -> None:
    module = tvm_ffi.load_module(checked)
    call = module["tvmconv_kernel_with_threads"]
    data, output = _aligned(SIZE), _aligned(SIZE)
    data[list(negative)] = -1
    with pytest.raises(ValueError, match="an element is negative"):
        call(threads, data, output)
    data[:] = 1
    call(threads, data, output)  # and the next call is not disturbed
    assert (output == 2).all()


@pytest.mark.parametrize("threads", [0, -1, 2**40, 1.5, None])
def test_bad_number_of_threads(checked: Path, threads: object) -> None:
    call = tvm_ffi.load_module(checked)["tvmconv_kernel_with_threads"]
    with pytest.raises(ValueError, match="number of threads"):
        call(threads, _aligned(SIZE), _aligned(SIZE))


def test_wrong_arguments(checked: Path) -> None:
    module = tvm_ffi.load_module(checked)
    with pytest.raises(ValueError, match="number of threads"):
        module["tvmconv_kernel_with_threads"]()
    with pytest.raises(TypeError, match="Expected 2 arguments"):
        module["tvmconv_kernel_with_threads"](1)


def test_workspace_costs_no_fresh_pages(tmp_path: Path) -> None:
    size = 1 << 18  # a mebibyte: malloc takes it from the system at first
    linker.link(tvm.compile(_reversed_sum(size), TARGET), tmp_path / "w.so")
    script = """
import resource, threading, numpy as np, tvm_ffi
call = tvm_ffi.load_module(sys.argv[1])["tvmconv_kernel_with_threads"]
size = int(sys.argv[2])
raw = np.ones(2 * size + 32, np.float32)
start = -raw.ctypes.data % 64 // 4
data, output = raw[start : start + size], raw[start + size : start + 2 * size]
def faults_of_late_calls():
    for _ in range(20):
        call(2, data, output)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        call(2, data, output)
    assert (output == 4).all()
    found.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
found = []
faults_of_late_calls()
thread = threading.Thread(target=faults_of_late_calls); thread.start(); thread.join()
print(max(found))
"""
    assert int(run_python(script, tmp_path / "w.so", size)) < size * 4 // 4096  # less than one call's pages in twenty


_NESTED = r"""
#include <omp.h>
#include <tvm/ffi/c_api.h>
int __tvm_ffi_tvmconv_kernel_with_threads(void*, const TVMFFIAny*, int32_t, TVMFFIAny*);
static void set(DLTensor* tensor, float* data, int64_t* size) {
  *tensor = (DLTensor){data, {kDLCPU, 0}, 1, {kDLFloat, 32, 1}, size, NULL, 0};
}
/* Call the kernel from every thread of a parallel region; return how many calls failed. */
int call_from_parallel_region(float* data, float* outputs, int64_t size, int threads) {
  int failed = 0;
#pragma omp parallel num_threads(threads) reduction(+ : failed)
  for (int repeat = 0; repeat < 20; ++repeat) {
    DLTensor tensors[2];
    set(&tensors[0], data, &size);
    set(&tensors[1], outputs + omp_get_thread_num() * size, &size);
    TVMFFIAny args[3] = {{.type_index = kTVMFFIInt, .v_int64 = 3}}, result = {0};
    for (int i = 0; i < 2; ++i) {
      args[1 + i].type_index = kTVMFFIDLTensorPtr;
      args[1 + i].v_ptr = &tensors[i];
    }
    failed += __tvm_ffi_tvmconv_kernel_with_threads(NULL, args, 3, &result) != 0;
  }
  return failed;
}
"""


def test_inside_a_parallel_region(tmp_path: Path) -> None:
    size, threads = 1024, 4
    linker.link(tvm.compile(_reversed_sum(size), TARGET), tmp_path / "kernel.so")
    (tmp_path / "nested.c").write_text(_NESTED)
    includes = [f"-I{find_include_path()}", f"-I{find_dlpack_include_path()}"]
    command = ["cc", "-fopenmp", "-shared", "-fPIC", *includes, "nested.c", "-L.", "-l:kernel.so", "-o", "nested.so"]
    subprocess.run(command, cwd=tmp_path, check=True)
    script = """
import ctypes, numpy as np, tvm_ffi
size, threads = int(sys.argv[2]), int(sys.argv[3])
ctypes.CDLL(sys.argv[1] + "/kernel.so")
nested = ctypes.CDLL(sys.argv[1] + "/nested.so")
raw = np.zeros((1 + threads) * size + 16, np.float32)
start = -raw.ctypes.data % 64 // 4
data, outputs = raw[start : start + size], raw[start + size : start + (1 + threads) * size]
data[:] = 1
pointer = lambda array: array.ctypes.data_as(ctypes.c_void_p)
failed = nested.call_from_parallel_region(pointer(data), pointer(outputs), ctypes.c_int64(size), threads)
print(failed, (outputs == 4).all())
"""
    output = run_python(script, tmp_path, size, threads, LD_LIBRARY_PATH=str(tmp_path))
    assert output == "0 True"


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(ToolchainError, match=r"no C compiler.*apt install gcc"):
        run_compiler((), tmp_path)


def test_failing_compiler(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match=r"(?s)C compiler failed.*no-such-file.*apt install gcc"):
        run_compiler(("no-such-file.c",), tmp_path)
