"""AMX: eight tile registers of configurable shape; instructions add the product of two (bf16 or integers) to a third (f32 or s32)."""

from __future__ import annotations

from collections.abc import Sequence

from ..isa import Tiles

_AWAKE = "tvmconv_stay_awake"
_QUADS = ("u8", "s8")


def _configuration(registers: Sequence[tuple[int, int]]) -> bytes:
    """Return the 64 bytes of `ldtilecfg` (Intel's manual): palette 1; from byte 16 bytes of rows, 16 bits each; from 48 rows."""
    columns = [octet for _, nbytes in registers for octet in (nbytes, 0)]
    return bytes([1, *[0] * 15, *columns, *[0] * 16, *(rows for rows, _ in registers), *[0] * 8])


TILES = Tiles(
    # avx512_bf16 rounds the stored values.
    features=("amx_bf16", "amx_tile", "avx512_bf16"),
    of_integers=("amx_int8", "amx_tile"),
    registers=8,
    rows=16,
    row_bytes=64,
    configuration=_configuration,
    configure="llvm.x86.ldtilecfg",
    release="llvm.x86.tilerelease",
    zero="llvm.x86.tilezero",
    load="llvm.x86.tileloadd64",
    store="llvm.x86.tilestored64",
    multiply={
        ("bf16", "bf16"): "llvm.x86.tdpbf16ps",
        **{(data, filter_): f"llvm.x86.tdpb{data[0]}{filter_[0]}d" for data in _QUADS for filter_ in _QUADS},
    },
    allow="tvmconv_allow_tiles",  # of native/permissions.c
    # One instruction for two vectors of sums: LLVM rounds each by itself and joins the halves, which takes three, and 512 channels from 128 at
    # 28x28 a tenth longer on an Emerald Rapids.
    round_line="llvm.x86.avx512bf16.cvtne2ps2bf16.512",
    # The CPU powers its floating-point vector units down after 650 ns of tile products alone, some 30 steps of a sum, and storing the
    # tiles then waits 240 ns for them. An addition of two zeros in each step keeps the units on: on one core of a Granite Rapids, sums
    # of 36 steps take 3250 cycles, without it 4400.
    awake=_AWAKE,
    text=f"""
define void @{_AWAKE}() alwaysinline nounwind {{
  call void asm sideeffect "vxorps %xmm15, %xmm15, %xmm15; vaddss %xmm15, %xmm15, %xmm15", "~{{xmm15}}"() nounwind
  ret void
}}""",
)
