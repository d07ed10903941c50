"""The launcher of CUDA libraries, on a driver that records its calls."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from fake_cuda import compile_driver
from toys import run_python

from tvmconv import ops
from tvmconv.epilogue import parse_epilogue
from tvmconv.lowering.cuda import linker as cuda_linker
from tvmconv.lowering.cuda.source import Argument, CudaSource, Launch, TensorMap
from tvmconv.targets.cuda import CudaTarget

HERE = Path(__file__).parent
PROBLEM = ops.convolution(
    (1, 4, 4, 8), (3, 3, 8, 16), strides=(1, 1), dilations=(1, 1), auto_pad="valid", bias_shape=(16,)
)
BOXES = TensorMap("filter", (16, 8, 3, 3), (8, 8, 2, 1), (1, 1, 2, 1))
OVERLAPPING = TensorMap("workspace", (16, 7, 3), (16, 4, 1), (1, 1, 1), (4, 64), 512)
KERNEL = CudaSource(
    "",
    (
        Launch("pack", (3, 1, 1), (32, 1, 1), 0, (BOXES, Argument("workspace", 512))),
        Launch(
            "convolve",
            (5, 6, 7),
            (64, 2, 1),
            100_000,
            (Argument("data"), OVERLAPPING, Argument("output")),
        ),
    ),
    1024,
)
# The first four bytes of every fatbin; the driver of these tests looks no further.
FATBIN = b"\x50\xed\x55\xba" + bytes(60)
ARRAYS = """
import sys; sys.path.insert(0, sys.argv[2])
import threading, tvm_ffi
from device_arrays import CUDA, HOST, DeviceArray
call = tvm_ffi.load_module(sys.argv[1])["tvmconv_kernel"]
kept = []
def array(*given, **more):
    kept.append(DeviceArray(*given, **more))
    return tvm_ffi.from_dlpack(kept[-1])
def arrays(device=0, **changed):
    shapes = {"data": (1, 4, 4, 8), "filter": (3, 3, 8, 16), "bias": (16,), "output": (1, 2, 2, 16)}
    made = {name: dict(address=0x1000 * (i + 1), shape=shape, device=(CUDA, device))
            for i, (name, shape) in enumerate(shapes.items())}
    for name, change in changed.items():
        made[name].update(change)
    return [array(**each) for each in made.values()]
def error(*given):
    try:
        call(*given)
    except Exception as raised:
        return f"{type(raised).__name__}: {raised}"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the driver, and `kernel.so`."""
    folder = tmp_path_factory.mktemp("launcher")
    compile_driver(folder, "75,75")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuda_linker, "compile_fatbin", lambda source, target: FATBIN)
        cuda_linker.link_cuda(KERNEL, PROBLEM, CudaTarget.parse("cuda:sm_80,sm_90"), folder / "kernel.so")
    return folder


def _run(script: str, folder: Path, log: Path, **environment: str) -> list[str]:
    log.touch()
    return run_python(
        ARRAYS + script,
        folder / "kernel.so",
        HERE,
        **{"LD_LIBRARY_PATH": str(folder), "FAKE_CUDA_LOG": str(log), "FAKE_CUDA_PARAMETERS": "2", **environment},
    ).splitlines()


def test_loads_once_and_launches_in_order(folder: Path, tmp_path: Path) -> None:
    _run("for _ in range(2): call(7, 0x8000, *arrays())", folder, tmp_path / "log")
    lines = (tmp_path / "log").read_text().splitlines()
    assert [line for line in lines if line.split()[0] in ("init", "load", "retain")] == [
        "init 0",
        "load ba55ed50",
        "retain 0",
    ]
    assert "attribute 8 of convolve is 100000 on 0" in lines
    launches = [
        "push 0",
        "launch pack on 0 grid 3 1 1 block 32 1 1 shared 0 stream 0x7 with 0x2000 0x8200",
        "launch convolve on 0 grid 5 6 7 block 64 2 1 shared 100000 stream 0x7 with 0x1000 0x8200",
        "pop 0",
    ]
    assert [line for line in lines if line.split()[0] in ("launch", "push", "pop")] == launches * 2
    # What loads code is allowed while a graph is captured, and what the caller chose holds again afterwards.
    modes = [line for line in lines if line.startswith("capture")]
    assert modes == ["capture mode 2", "capture mode 0"] * (len(modes) // 2)
    assert lines.index("capture mode 2") < lines.index("load ba55ed50")
    assert "capture mode 2" not in lines[lines.index(launches[1]) :]


def test_maps_are_of_the_arrays_of_each_call(folder: Path, tmp_path: Path) -> None:
    script = "for at in (0x2000, 0x9000): call(7, 0x8000, *arrays(filter={'address': at}))"
    _run(script, folder, tmp_path / "log")
    lines = (tmp_path / "log").read_text().splitlines()
    # f32, no interleaving, swizzle of rows of 32 or 64 bytes, L2 promotion of 128 bytes, zeros outside; then of each axis
    # extent, bytes, box and step.
    whole = "modes 0 1 2 0 axes 16/0/8/1 8/64/8/1 3/512/2/2 3/1536/1/1"
    overlapping = "modes 0 2 2 0 axes 16/0/16/1 7/16/4/1 3/256/1/1"
    described = [(at, axes) for data in ("0x2000", "0x9000") for at, axes in ((data, whole), ("0x8200", overlapping))]
    assert [line for line in lines if line.startswith("map")] == [f"map {at} type 7 {axes}" for at, axes in described]
    launches = [line for line in lines if line.startswith("launch pack")]
    assert [line.split()[-2] for line in launches] == ["0x2000", "0x9000"]


def test_several_maps_are_one_parameter(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Every second pixel of a row, from the first and from the second on.
    phases = tuple(TensorMap("output", (16, 1, 2), (8, 1, 2), (1, 1, 1), (32, 32), offset) for offset in (0, 64))
    launch = Launch("convolve", (1, 1, 1), (32, 1, 1), 0, (phases, BOXES))
    monkeypatch.setattr(cuda_linker, "compile_fatbin", lambda source, target: FATBIN)
    cuda_linker.link_cuda(CudaSource("", (launch,), 0), PROBLEM, CudaTarget.parse("cuda:sm_80"), tmp_path / "kernel.so")
    _run("call(7, 0, *arrays())", tmp_path, tmp_path / "log", LD_LIBRARY_PATH=str(folder))
    lines = (tmp_path / "log").read_text().splitlines()
    described = "type 7 modes 0 1 2 0 axes 16/0/8/1 1/128/1/1 2/128/2/1"
    maps = [line for line in lines if line.startswith("map")]
    assert maps[:2] == [f"map {at} {described}" for at in ("0x4000", "0x4040")] and len(maps) == 3
    # Each parameter is where its first map is.
    (launched,) = (line for line in lines if line.startswith("launch"))
    assert launched.split()[-2:] == ["0x4000", "0x2000"]


def test_each_operand_has_its_own_type(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = PROBLEM.with_(dtype="bf16", epilogue=parse_epilogue("scale-prelu-add"))
    names = [*problem.operands, "output"]
    assert names == ["data", "filter", "bias", "scale", "slope", "residual", "output"]
    launch = Launch("convolve", (1, 1, 1), (32, 1, 1), 0, tuple(map(Argument, names)))
    monkeypatch.setattr(cuda_linker, "compile_fatbin", lambda source, target: FATBIN)
    cuda_linker.link_cuda(CudaSource("", (launch,), 0), problem, CudaTarget.parse("cuda:sm_80"), tmp_path / "kernel.so")
    shapes = [*(shape for shape, _ in problem.operands.values()), problem.output_shape]
    script = f"""
def given(f32):
    each = enumerate({shapes})
    return [array(0x1000 * (i + 1), shape, "f32" if i in f32 else "bf16") for i, shape in each]
for f32 in ((3, 4), (4,), (3, 4, 5)):
    print(error(7, 0, *given(f32)))
"""
    right, *wrong = _run(script, tmp_path, tmp_path / "log", LD_LIBRARY_PATH=str(folder), FAKE_CUDA_PARAMETERS="7")
    assert right == "None"
    assert wrong == [
        "TypeError: scale has the DLPack type (4, 16 bits), not (2, 32 bits)",
        "TypeError: residual has the DLPack type (2, 32 bits), not (4, 16 bits)",
    ]
    (launched,) = (line for line in (tmp_path / "log").read_text().splitlines() if line.startswith("launch"))
    assert launched.split()[-7:] == [hex(0x1000 * (i + 1)) for i in range(7)]


def test_the_callers_context_is_used_if_it_is_of_the_device(folder: Path, tmp_path: Path) -> None:
    script = """
import ctypes
driver = ctypes.CDLL("libcuda.so.1")
def enter(device):
    context = ctypes.c_void_p()
    driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
    driver.cuCtxPushCurrent_v2(context)
enter(1)
for device in (1, 0, 1):
    call(0, 0x8000, *arrays(device))
found = ctypes.c_int()
driver.cuCtxGetDevice(ctypes.byref(found))
print(found.value)
"""
    assert _run(script, folder, tmp_path / "log") == ["1"]
    lines = (tmp_path / "log").read_text().splitlines()
    assert [" ".join(line.split()[:4]) for line in lines if line.split()[0] in ("launch", "push", "pop")] == [
        "push 1",
        "launch pack on 1",
        "launch convolve on 1",
        "push 0",
        "launch pack on 0",
        "launch convolve on 0",
        "pop 0",
        "launch pack on 1",
        "launch convolve on 1",
    ]
    # Shared memory is asked for on each device, once.
    assert [line[-1] for line in lines if line.startswith("attribute 8 of convolve")] == ["1", "0"]


def test_threads_load_it_together_once(folder: Path, tmp_path: Path) -> None:
    script = """
start = threading.Barrier(8)
def work():
    given = arrays()
    start.wait()
    call(0, 0x8000, *given)
threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
    _run(script, folder, tmp_path / "log")
    first_words = [line.split()[0] for line in (tmp_path / "log").read_text().splitlines()]
    assert (first_words.count("load"), first_words.count("retain"), first_words.count("init")) == (1, 1, 1)
    assert first_words.count("launch") == 16


def test_steps_of_nothing(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch gives an empty array steps that are those of no array."""
    problem = ops.convolution((1, 4, 4, 0), (3, 3, 0, 16), strides=(1, 1), dilations=(1, 1), auto_pad="valid")
    kernel = CudaSource("", (Launch("convolve", (1, 1, 1), (64, 1, 1), 0, (Argument("output"),)),), 0)
    monkeypatch.setattr(cuda_linker, "compile_fatbin", lambda source, target: FATBIN)
    cuda_linker.link_cuda(kernel, problem, CudaTarget.parse("cuda:sm_80"), tmp_path / "kernel.so")
    compile_driver(tmp_path, "75,75")
    filters = "filter={'shape': (3, 3, 0, 16), 'strides': (0, 0, 0, 0)}"
    _run(
        f"x, w, _, out = arrays(data={{'shape': (1, 4, 4, 0)}}, {filters}); call(7, 0, x, w, out)",
        tmp_path,
        tmp_path / "log",
        FAKE_CUDA_PARAMETERS="1",
    )
    assert "launch convolve" in (tmp_path / "log").read_text()


def test_wrong_arguments(folder: Path, tmp_path: Path) -> None:
    cases = {
        "*arrays(data={'device': (HOST, 0)})": "ValueError: data is not in a CUDA device's memory",
        "*arrays(bias={'device': (CUDA, 1)})": "ValueError: bias is on GPU 1, and the arrays before it on GPU 0",
        "*arrays(device=64)": "ValueError: data is on GPU 64; there is none",
        "*arrays(filter={'dtype': 'bf16'})": "TypeError: filter has the DLPack type (4, 16 bits), not (2, 32 bits)",
        "*arrays(output={'shape': (1, 2, 2, 8)})": "ValueError: output has 8 elements along axis 3, not 16",
        "*arrays(output={'shape': (4, 16)})": "ValueError: output has 2 axes, not 4",
        "*arrays(data={'strides': (128, 32, 1, 4)})": "ValueError: data is not C-contiguous",
        "*arrays(data={'address': 0x1004})": "ValueError: data is at address 0x1004, which is not a multiple of 16",
        "*arrays(data={'address': 0})": "ValueError: data is at address",
        "*arrays()[:3]": "TypeError: expected 6 arguments",
        "*arrays()[:3], 3": "TypeError: output is not an array",
    }
    calls = "\n".join(f"print(error(0, 0x8000, {given}))" for given in cases)
    lines = _run(calls, folder, tmp_path / "log")
    for line, expected in zip(lines, cases.values(), strict=True):
        assert line.startswith(expected)
    assert "launch" not in (tmp_path / "log").read_text()


def test_strides_of_single_elements_do_not_matter(folder: Path, tmp_path: Path) -> None:
    assert _run("print(error(0, 0x8000, *arrays(data={'strides': (7, 32, 8, 1)})))", folder, tmp_path / "log") == [
        "None"
    ]


def test_workspace_and_stream_are_numbers(folder: Path, tmp_path: Path) -> None:
    script = "print(error(0, 0, *arrays()))\nprint(error(0, 0x8010, *arrays()))\nprint(error(None, 0, *arrays()))"
    missing, unaligned, not_a_number = _run(script, folder, tmp_path / "log")
    assert "needs 1024 bytes, aligned to 256" in missing and "needs 1024 bytes" in unaligned
    assert not_a_number.startswith("TypeError: the stream and the workspace")


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        ("cuInit:100", r"cuInit failed with CUDA error 100, no CUDA-capable device is detected"),
        ("cuInit:3", "use spawn instead of fork"),
        ("cuLibraryLoadData:209", "it is for sm_80, sm_90 and later, and this GPU is an sm_75"),
        ("cuKernelGetFunction:209", "it is for sm_80, sm_90 and later, and this GPU is an sm_75"),
        ("cuLibraryLoadData:222", "update the driver"),
        ("cuLibraryGetKernel:500", "looking up pack failed with CUDA error 500"),
        ("cuDevicePrimaryCtxRetain:2", "opening the GPU failed with CUDA error 2"),
        ("cuCtxGetDevice:4", "reading the context failed with CUDA error 4"),
        ("cuKernelSetAttribute:1", "reserving the shared memory of pack failed with CUDA error 1"),
        ("cuTensorMapEncodeTiled:1", "describing an array to pack failed with CUDA error 1"),
        ("cuLaunchKernel:701", "launching pack failed with CUDA error 701, an error of the fake driver"),
    ],
)
def test_driver_errors(folder: Path, tmp_path: Path, failure: str, said: str) -> None:
    # After an error, the next call tries again.
    script = "print(error(0, 0x8000, *arrays()))\nimport ctypes\nctypes.CDLL(None).unsetenv(b'FAKE_CUDA_FAIL')\n"
    failed, again = _run(
        f"{script}print(error(0, 0x8000, *arrays()))", folder, tmp_path / "log", FAKE_CUDA_FAIL=failure
    )
    assert failed.startswith("RuntimeError: ") and said in failed
    assert again == "None"
    lines = (tmp_path / "log").read_text().splitlines()
    assert sum(line.startswith("push") for line in lines) == sum(line.startswith("pop") for line in lines)


def test_a_gpu_that_is_not_there(folder: Path, tmp_path: Path) -> None:
    (line,) = _run("print(error(0, 0x8000, *arrays(device=5)))", folder, tmp_path / "log")
    assert line.startswith("RuntimeError: finding the GPU failed with CUDA error 101")


def test_no_driver(folder: Path, tmp_path: Path) -> None:
    (line,) = _run("print(error(0, 0x8000, *arrays()))", folder, tmp_path / "log", LD_LIBRARY_PATH="/nowhere")
    assert line.startswith("RuntimeError: there is no NVIDIA driver (libcuda.so.1:")


def test_a_driver_that_is_too_old(folder: Path, tmp_path: Path) -> None:
    compile_driver(tmp_path, "75", 13000, 0, "-DcuLibraryLoadData=renamed")
    (line,) = _run("print(error(0, 0x8000, *arrays()))", folder, tmp_path / "log", LD_LIBRARY_PATH=str(tmp_path))
    assert (
        line == "RuntimeError: the NVIDIA driver has no cuLibraryLoadData: it is older than CUDA 12; update the driver"
    )


@pytest.mark.parametrize(("first", "said"), [("", "None"), ("call(0, 0x8000, *arrays())", "use spawn instead of fork")])
def test_in_a_forked_child(folder: Path, tmp_path: Path, first: str, said: str) -> None:
    script = f"""
import os
{first}
child = os.fork()
if child == 0:
    print(error(0, 0x8000, *arrays()), flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""
    (line,) = _run(script, folder, tmp_path / "log")
    assert said in line


def test_needs_only_libc(folder: Path) -> None:
    dynamic = subprocess.run(
        ["readelf", "-dW", folder / "kernel.so"], capture_output=True, text=True, check=True
    ).stdout
    needed = [line.split("[")[1].rstrip("]") for line in dynamic.splitlines() if "(NEEDED)" in line]
    assert needed
    assert all(name.startswith(("libc.", "libdl.", "libpthread.", "ld-linux")) for name in needed), needed
