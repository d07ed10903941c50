"""Choose a block's tile of a matrix multiplication on tensor cores, by the model in `blocks.py`.

For each index of depth, a tile of rows x columns costs the maximum of

    multiplying    rows * columns / RATE
    shared memory  the tile is written once, and each warp reads its rows and columns, at 128 bytes a cycle
    L2 cache       reading the tile's rows and columns, at about 40 bytes a cycle for each multiprocessor

For example 128 x 128 in f16 by four warps of 64 x 64 on sm_80: 16 cycles of multiplying, 256 * 2 / 128 + 4 * 128 * 2 /
128 = 12 of shared memory, 256 * 2 / 40 = 13 of L2; with half of the rows L2 is the bound. Other latencies are hidden while other tiles
of the multiprocessor have work.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import ClassVar

from ...dtypes import DTYPE_BYTES
from ...targets.cuda import CudaTarget
from .blocks import REGISTERS, WARP, BlockTile, Extents, best

FRAGMENT = 16
# 16-bit multiply-adds of a multiprocessor per cycle by mma.sync; TF32 has half the rate. sm_90 has 2048 by wgmma, and
# about 62 % of that by mma.sync; later architectures are assumed to be the same.
_RATE = {80: 1024, 86: 512, 89: 512, 90: 1280, 100: 1280, 120: 512}
_SHARED_RATE = 128
# Fragments of sums that a warp has room for; and the same if up to 64 single elements are copied through registers.
MOST_SUMS, MOST_SUMS_BY_ELEMENTS = 16, 8
# Registers of a thread apart from sums and operands: addresses of copies and fragments.
_OTHER_REGISTERS = 56


@dataclass(frozen=True)
class Tile(BlockTile):
    """Tile of a matrix multiplication on tensor cores, by warps, and their fragments of 16x16 sums, along rows (m) and columns (n)."""

    warps_m: int
    warps_n: int
    fragments_m: int
    fragments_n: int

    # A barrier (about 30 cycles), a load of fragments (30) and the first multiplication (35).
    STEP_LATENCY: ClassVar[float] = 100
    # From memory: 3.35 TB/s at 1.7 GHz on 132 multiprocessors.
    PARTS_RATE: ClassVar[float] = 15

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.warps_m * self.warps_n * WARP

    @property
    def rows(self) -> int:
        """Rows of a block."""
        return self.warps_m * self.fragments_m * FRAGMENT

    @property
    def columns(self) -> int:
        """Columns of a block."""
        return self.warps_n * self.fragments_n * FRAGMENT

    @cached_property
    def shared_bytes(self) -> int:
        """Shared memory of a block: stages of operands, and later in their place f32 sums, whose rows are padded by 32 bytes."""
        size = DTYPE_BYTES[self.dtype]
        # Each row has 8 elements of padding; either index of an operand may be the faster, so rows of both orders are counted.
        operands = (self.rows + self.columns) * self.depth + 8 * (self.rows + self.columns + 2 * self.depth)
        return max(size * operands * self.stages, 4 * (self.rows + 8) * (self.columns + 8))

    @property
    def registers(self) -> int:
        """Registers of a thread: 8 for each fragment of sums, 4 for each of an operand (ptxas: 210 with 4 x 4)."""
        return 8 * self.sums + 4 * (self.fragments_m + self.fragments_n) + _OTHER_REGISTERS

    @property
    def sums(self) -> int:
        """A warp's fragments of sums."""
        return self.fragments_m * self.fragments_n

    def fits(self, target: CudaTarget) -> bool:
        """Return whether registers and shared memory suffice, and each thread has a 16-byte vector of each copy."""
        copied = min(self.rows, self.columns) * self.depth * DTYPE_BYTES[self.dtype]
        return (
            self.registers <= min(255, REGISTERS // self.threads)
            and self.shared_bytes <= target.shared_bytes
            and copied >= self.threads * 16
        )

    def depth_cycles(self, target: CudaTarget) -> float:
        """Return the cycles for each index of depth without waiting."""
        size = DTYPE_BYTES[self.dtype]
        rate = _RATE[target.architectures[0]] * 2 / size
        written = (self.rows + self.columns) * size
        read = self.warps * (self.fragments_m + self.fragments_n) * FRAGMENT * size
        return max(self.rows * self.columns / rate, (written + read) / _SHARED_RATE, self.copy_cycles)


def best_tile(extents: Extents, dtype: str, target: CudaTarget, most_sums: int = MOST_SUMS) -> Tile:
    """Return the best tile by the model with at most `most_sums` fragments of sums a warp."""
    return best((tile for tile in tiles(dtype, target) if tile.sums <= most_sums), extents, target)


def tiles(dtype: str, target: CudaTarget) -> Iterator[Tile]:
    """Yield the tiles that are compared.

    Each has the most stages that fit, up to 4: an L2 hit takes some 250 cycles, a load from memory 600 or more, a step of a large
    tile 500.
    """
    depths = (32, 64) if dtype != "f32" else (16, 32)
    arrangements = ((1, 2), (2, 1), (2, 2), (1, 4), (4, 1), (2, 4), (4, 2))
    for warps, m, n, depth in product(arrangements, (1, 2, 4), (1, 2, 4), depths):
        for stages in (4, 3, 2):
            tile = Tile(*warps, m, n, dtype=dtype, depth=depth, stages=stages)
            if tile.fits(target):
                yield tile
                break
