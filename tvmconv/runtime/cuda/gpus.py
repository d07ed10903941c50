"""Find this machine's GPUs, in the NVIDIA driver's order, or the reason why there are none."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

from ...errors import CudaError
from .driver import Driver, driver

# CUdevice_attribute
_L2_BYTES, _MAJOR, _MINOR = 38, 75, 76
_NAME_BYTES = 256


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU.

    Attributes
    ----------
    index
        Its number in this process, as in ``cuda:0`` (CUDA_VISIBLE_DEVICES may hide some).
    name
        Its name in the driver.
    architecture
        Its compute capability times ten: 90 is sm_90.
    l2_bytes
        Bytes of its L2 cache.
    kind
        Kind of the targets that it runs.
    """

    index: int
    name: str
    architecture: int
    l2_bytes: int
    kind: ClassVar[str] = "cuda"

    def __str__(self) -> str:
        return f"cuda:{self.index} ({self.name}, sm_{self.architecture})"


@dataclass(frozen=True, slots=True)
class Survey:
    """GPUs of this machine.

    Attributes
    ----------
    gpus
        In the driver's order; empty if there is an obstacle.
    obstacle
        Reason why there are none: no driver, one that is too old or fails, or no GPU; None if there are some.
    driver_version
        The newest CUDA version that the driver supports, 13000 for 13.0; None if it could not be used.
    """

    gpus: tuple[Gpu, ...]
    obstacle: str | None
    driver_version: int | None = None


@cache
def survey() -> Survey:
    """Ask the driver for its GPUs, once in a process.

    This initialises CUDA in the process, after which a forked child cannot use it.
    """
    try:
        cuda = driver()
        count = c_int()
        cuda.call("cuDeviceGetCount", byref(count))
        gpus = tuple(_gpu(cuda, index) for index in range(count.value))
    except CudaError as error:
        return Survey((), str(error))
    return Survey(gpus, None if gpus else "the NVIDIA driver sees no GPU", cuda.version)


def _gpu(cuda: Driver, index: int) -> Gpu:
    device, name = c_int(), ctypes.create_string_buffer(_NAME_BYTES)
    cuda.call("cuDeviceGet", byref(device), index)
    cuda.call("cuDeviceGetName", name, _NAME_BYTES, device)

    def attribute(number: int) -> int:
        value = c_int()
        cuda.call("cuDeviceGetAttribute", byref(value), number, device)
        return value.value

    return Gpu(
        index,
        name.value.decode(errors="replace"),
        10 * attribute(_MAJOR) + attribute(_MINOR),
        attribute(_L2_BYTES),
    )
