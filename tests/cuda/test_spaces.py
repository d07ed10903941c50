"""Sampled schedules for GPUs compile, keep their sums in registers, and use the units that they are for.

Several schedules are compiled in one file, as most of nvcc's time goes into the headers.
"""

from __future__ import annotations

import random
import re
import struct

import pytest
from cuda_kernels import ELF, cuda_source, images_of, needs_nvcc
from emulator import FIRST_FUNCTION

from tvmconv.algorithms import table
from tvmconv.algorithms.table import applicable
from tvmconv.lowering.compiler import Choice, samples, schedule
from tvmconv.lowering.cuda.lowering import CudaSource, to_source
from tvmconv.lowering.cuda.nvcc import compile_fatbin
from tvmconv.signature import parse_signature
from tvmconv.targets.cuda import CudaTarget

SM_80 = CudaTarget.parse("cuda:sm_80")
PROBLEMS = [
    "conv2d-n1-i64x56x56-o64x56x56-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-{}-bias",
    "conv2d-n8-i256x28x28-o128x28x28-k1x1-s1x1-d1x1-p0x0_0x0-g1-NCX-OIX-{}",
    "conv2d-n1-i3x112x112-o32x56x56-k7x7-s2x2-d1x1-p3x3_2x2-g1-NCX-OIX-{}-bias",
    "conv2d-n1-i128x28x28-o128x28x28-k3x3-s1x1-d1x1-p1x1_1x1-g32-NXC-OIX-{}",
    "conv2d-n4-i96x56x56-o96x56x56-k5x5-s1x1-d1x1-p2x2_2x2-g96-NXC-XIO-{}",
    "conv2d-n4-i96x56x56-o96x28x28-k3x3-s2x2-d1x1-p1x1_0x0-g96-NCX-OIX-{}-bias",
    "backprop2d-n1-i64x16x16-o32x32x32-k4x4-s2x2-d1x1-p1x1_1x1-g1-NCX-OIX-{}-bias",
    "backprop2d-n1-i40x15x15-o24x31x31-k3x3-s2x2-d1x1-p0x0_0x0-g1-NXC-XIO-{}",
    "conv1d-n1-i64x4000-o64x4000-k9-s1-d8-p32_32-g1-NXC-OIX-{}",
    "conv3d-n1-i16x12x24x24-o32x12x24x24-k3x3x3-s1x1x1-d1x1x1-p1x1x1_1x1x1-g1-NXC-XIO-{}-bias",
]
TYPES = ["f32", "f16", "bf16"]
ALGORITHMS = [
    (each.name, dtype)
    for each in table.ALGORITHMS
    for dtype in TYPES
    if each.kind == "cuda"
    and any(each.covers(parse_signature(signature.format(dtype)), SM_80) is None for signature in PROBLEMS)
]
# The low 12 bits of a machine instruction (16 bytes, from sm_70 on) are its operation, as nvdisasm's listings show.
HMMA, FFMA = 0x23C, 0x223


def sampled(algorithm: str, dtype: str, count: int) -> list[CudaSource]:
    """Return sources of `count` schedules, each of any problem that the algorithm covers, sketch and decisions."""
    draw, sources = random.Random(f"{algorithm} {dtype}"), []
    problems = [parse_signature(signature.format(dtype)) for signature in PROBLEMS]
    choices = [(p, a) for p in problems for a in applicable(p, SM_80, "tf32") if a.name == algorithm]
    draw.shuffle(choices)
    for number in range(count):
        problem, chosen = choices[number % len(choices)]
        sketches = chosen.sketches(chosen.define(problem, SM_80), SM_80)
        sketch = draw.randrange(len(sketches))
        decisions = tuple(draw.randrange(len(sample.attrs[0])) for sample in samples(sketches[sketch]))
        definition, scheduled = schedule(problem, SM_80, Choice(algorithm, sketch, decisions))
        sources.append(to_source(scheduled.mod, definition, SM_80))
    return sources


def compile_together(sources: list[CudaSource]) -> bytes:
    """Return the machine code of all functions, an ELF file."""
    first, texts = sources[0].source, []
    for number, source in enumerate(sources):
        functions = source.source[source.source.index(FIRST_FUNCTION) :]
        texts.append(re.sub(r"\btvmconv_kernel", f"kernel{number}", functions))
    headers = first[: first.index(FIRST_FUNCTION)]
    fatbin = compile_fatbin(headers + "\n".join(texts), SM_80)
    (cubin,) = (code for kind, _, code in images_of(fatbin) if kind == ELF)
    return cubin


def sections(cubin: bytes) -> list[tuple[int, int, bytes]]:
    """Return the type, flags and content of all sections of an ELF file."""
    (start,), (size, count) = struct.unpack_from("<Q", cubin, 40), struct.unpack_from("<HH", cubin, 58)
    headers = [struct.unpack_from("<IIQQQQ", cubin, start + size * i) for i in range(count)]
    return [(kind, flags, cubin[at : at + length]) for _, kind, flags, _, at, length in headers]


def operations(cubin: bytes) -> set[int]:
    """Return the operations of all machine instructions of an ELF file."""
    executable = 4  # SHF_EXECINSTR
    code = [content for _, flags, content in sections(cubin) if flags & executable]
    return {struct.unpack_from("<H", each, at)[0] & 0xFFF for each in code for at in range(0, len(each), 16)}


def frames(cubin: bytes) -> list[int]:
    """Return how many bytes of local memory each function of an ELF file has."""
    information, with_size, frame_size = 0x70000000, 4, 0x11  # SHT_CUDA_INFO, EIFMT_SVAL, EIATTR_FRAME_SIZE
    found = []
    for content in (content for kind, _, content in sections(cubin) if kind == information):
        at = 0
        while at < len(content):
            form, attribute, size = struct.unpack_from("<BBH", content, at)
            if attribute == frame_size:
                found += struct.unpack_from("<4xI", content, at + 4)
            at += 4 + (size if form == with_size else 0)
    return found


def check(algorithm: str, dtype: str, count: int) -> None:
    sources = sampled(algorithm, dtype, count)
    launches = [launch for source in sources for launch in source.launches]
    for launch in launches:
        x, y, z = launch.block
        assert x * y * z <= 1024 and launch.shared_bytes <= SM_80.shared_bytes
    cubin = compile_together(sources)
    assert frames(cubin) == [0] * len(launches)
    found = operations(cubin)
    assert (HMMA if algorithm.startswith("tensorcore") else FFMA) in found
    assert algorithm.startswith("tensorcore") or HMMA not in found


@needs_nvcc
@pytest.mark.parametrize(("algorithm", "dtype"), ALGORITHMS)
def test_sampled_schedules_compile_without_local_memory(algorithm: str, dtype: str) -> None:
    check(algorithm, dtype, 1)


@needs_nvcc
@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "dtype"), ALGORITHMS)
def test_many_sampled_schedules_compile_without_local_memory(algorithm: str, dtype: str) -> None:
    check(algorithm, dtype, 50)


@needs_nvcc
def test_registers_are_not_spilled_for_more_threads() -> None:
    """By itself ptxas makes do with 64 registers and 12 bytes for this one."""
    signature = "conv2d-n16-i3x224x224-o64x112x112-k7x7-s2x2-d1x1-p3x3_2x2-g1-NXC-XIO-f16"
    cubin = compile_together([cuda_source(signature, SM_80, Choice("tensorcore", 1, (1, 0, 0, 2)))])
    assert frames(cubin) == [0]
