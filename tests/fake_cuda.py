"""A machine with GPUs that are none: a fake driver, kernels that run on the host, and arrays that say they are on a GPU."""

from __future__ import annotations

import ctypes
import hashlib
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from toys import entry
from tvm_ffi.libinfo import find_dlpack_include_path, find_include_path

from tests.placing import aligned
from tvmconv.runtime.bundle import Bundle, BundleTarget, write_manifest
from tvmconv.runtime.cuda import driver as cuda_driver
from tvmconv.runtime.cuda import gpus as cuda

HERE = Path(__file__).parent
SIGNATURE = "conv1d-n2-i1x64-o1x64-k1-s1-d1-p0_0-g1-NXC-XIO-f32"
SHAPE, FILTER_SHAPE = (2, 64, 1), (1, 1, 1)
# What the fake array library's own stream is called.
FOREIGN_STREAM = 77


def compile_driver(folder: Path, architectures: str = "90", version: int = 13000, init: int = 0, *more: str) -> Path:
    """Compile a driver that knows GPUs of these architectures (separated by commas) into the folder; return its path.

    `more` are other arguments of the compiler.
    """
    path = folder / "libcuda.so.1"
    macros = [f"-DARCHITECTURES={architectures}", f"-DVERSION={version}", f"-DINIT={init}"]
    soname = "-Wl,-soname,libcuda.so.1"  # by which a kernel's launcher finds it
    flags = ["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", soname, *macros, *more]
    subprocess.run(["cc", *flags, HERE / "fake_driver.c", "-o", path], check=True)
    return path


@contextmanager
def machine_with(path: Path) -> Iterator[Any]:
    """Let the driver at `path` be this machine's; yield it, None if there is none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuda_driver, "LIBRARY", str(path))
        forget()
        library = ctypes.CDLL(str(path)) if path.exists() else None
        if library is not None and hasattr(library, "fake_log"):
            library.fake_log.restype = ctypes.c_char_p
        yield library
    forget()


def forget() -> None:
    """Forget what is known of the driver."""
    cuda.survey.cache_clear()
    cuda_driver.driver.cache_clear()


def compile_kernel(path: Path, *macros: str) -> None:
    """Compile the fake kernel."""
    includes = [f"-I{find_include_path()}", f"-I{find_dlpack_include_path()}"]
    subprocess.run(["cc", "-shared", "-fPIC", *macros, *includes, HERE / "fake_kernel.c", "-o", path], check=True)


def write_cuda_bundle(
    folder: Path,
    *targets: str,
    bias: bool = False,
    workspace_bytes: int = 0,
    macros: tuple[str, ...] = (),
    batch: int = SHAPE[0],
) -> Path:
    """Write a bundle with the fake kernel for each of the CUDA targets, named like ``cuda:sm_90``."""
    signature = SIGNATURE.replace("-n2-", f"-n{batch}-") + ("-bias" if bias else "")
    entries = []
    for target in targets:
        made = entry(signature, target.replace(":", "-").replace(",", "-"))
        library = folder / made.file
        library.parent.mkdir(parents=True)
        compile_kernel(library, f"-DBIAS={int(bias)}", *macros)
        digest = hashlib.sha256(library.read_bytes()).hexdigest()
        entries.append(entry(signature, target, digest, file=made.file, workspace_bytes=workspace_bytes))
    kinds = {target: BundleTarget("cuda", tuple(target.removeprefix("cuda:").split(","))) for target in targets}
    write_manifest(Bundle(folder, "0.1.0", "0.27.0.post1", None, kinds, tuple(entries)))
    return folder


class Device:
    """A device of the fake library."""

    def __init__(self, index: int) -> None:
        self.index = index


class Array:
    """An array of a library that speaks DLPack and the array API; `streams` are those it was made ready on."""

    def __init__(self, content: np.ndarray, device: int = 0, owner: Any = None) -> None:
        self.content, self.device, self.owner = content, Device(device), owner
        self.shape, self.dtype = content.shape, content.dtype
        self.streams: list[int | None] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, self.device.index)

    def __dlpack__(self, *, stream: int | None = None) -> Any:
        self.streams.append(stream)
        capsule = self.content.__dlpack__()
        address = ctypes.pythonapi.PyCapsule_GetPointer
        address.restype, address.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        # The device is the second field of a DLTensor: type and number.
        device = (ctypes.c_int32 * 2).from_address(address(capsule, b"dltensor") + 8)
        device[:] = 2, self.device.index
        return capsule

    def __array_namespace__(self) -> Any:
        return Namespace


class Namespace:
    """The fake library's functions."""

    uint8 = np.dtype(np.uint8)

    @staticmethod
    def empty(shape: tuple[int, ...], dtype: Any, device: Device) -> Array:
        return Array(aligned(np.zeros(shape, dtype)), device.index)

    @staticmethod
    def from_dlpack(value: Any) -> Array:
        tensor = tvm_ffi.from_dlpack(value.__dlpack__(stream=FOREIGN_STREAM))
        size = int(np.prod(tensor.shape))
        memory = (ctypes.c_float * size).from_address(tensor.data_ptr())
        return Array(np.ctypeslib.as_array(memory).reshape(tuple(tensor.shape)), value.__dlpack_device__()[1], tensor)
