"""Lower a problem for GPUs, for tests."""

from __future__ import annotations

import struct

import pytest

from tvmconv.errors import ToolchainError
from tvmconv.lowering.compiler import Choice, default_choice, schedule
from tvmconv.lowering.cuda.lowering import CudaSource, to_source
from tvmconv.lowering.cuda.nvcc import check_nvcc
from tvmconv.signature import parse_signature
from tvmconv.targets.cuda import CudaTarget


def _reason() -> str:
    try:
        check_nvcc(CudaTarget.parse("cuda:sm_80,sm_90,sm_100"))
    except ToolchainError as error:
        return str(error)
    return ""


needs_nvcc = pytest.mark.skipif(bool(_reason()), reason=_reason() or "there is an nvcc")


# Of a fatbin, and of the kinds of its parts.
MAGIC = struct.pack("<I", 0xBA55ED50)
PTX, ELF = 1, 2


def images_of(fatbin: bytes) -> list[tuple[int, int, bytes]]:
    """Return the kind, architecture and code of each part of a fatbin."""
    _magic, _version, header, size = struct.unpack_from("<IHHQ", fatbin)
    images, at = [], header
    while at < header + size:
        kind, _version, part_header, part_size = struct.unpack_from("<HHIQ", fatbin, at)
        (architecture,) = struct.unpack_from("<I", fatbin, at + 28)
        images.append((kind, architecture, fatbin[at + part_header : at + part_header + part_size]))
        at += part_header + part_size
    return images


def cuda_source(signature: str, target: CudaTarget, choice: Choice | None = None) -> CudaSource:
    """Return the source of a problem, by default as it is with zero trials."""
    problem = parse_signature(signature)
    definition, scheduled = schedule(problem, target, choice or default_choice(problem, target))
    return to_source(scheduled.mod, definition, target)
