"""Choose a block's tile of a matrix multiplication on FMA units, by the model in `blocks.py`.

Each thread sums a tile of its own in registers. For each index of depth, a tile of rows x columns costs the maximum of

    multiplying    rows * columns / 128, and part of the loads, which take the same issue slots
    shared memory  each thread reads `sums_m` + `sums_n` numbers in vectors of 4; a warp's vectors, partly the same, take 2 cycles
    L2 cache       reading the tile's rows and columns

For example 128 x 128 by 256 threads of 8 x 8: 128 cycles of multiplying, 8 warps * 4 vectors * 2 = 64 of shared memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import ceil
from typing import ClassVar

from ...dtypes import DTYPE_BYTES
from ...targets.cuda import CudaTarget
from .blocks import L2_RATE, REGISTERS, BlockTile, Extents, best

VECTOR = 4  # numbers of a 16-byte load from shared memory
# Multiply-adds of a multiprocessor per cycle; sm_80 has 64, but only ratios matter.
RATE = 128
# Registers of a thread apart from sums and operands: addresses, and elements on their way to shared memory.
OTHER_REGISTERS = 48


@dataclass(frozen=True)
class FmaTile(BlockTile):
    """Tile of a matrix multiplication that a block computes on FMA units, by threads along rows (m) and columns (n), each with its sums."""

    threads_m: int
    threads_n: int
    sums_m: int
    sums_n: int

    # A barrier and the first loads.
    STEP_LATENCY: ClassVar[float] = 80
    # From the L2 cache: only small problems are split.
    PARTS_RATE: ClassVar[float] = L2_RATE

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.threads_m * self.threads_n

    @property
    def rows(self) -> int:
        """Rows of a block."""
        return self.threads_m * self.sums_m

    @property
    def columns(self) -> int:
        """Columns of a block."""
        return self.threads_n * self.sums_n

    @property
    def pad(self) -> int:
        """Elements of padding after a row in shared memory, 16 bytes: rows begin in different banks, and vectors stay aligned."""
        return 16 // DTYPE_BYTES[self.dtype]

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block, for either order of an operand's indices."""
        edge = self.rows + self.columns
        return self.stages * DTYPE_BYTES[self.dtype] * (edge * self.depth + self.pad * max(edge, 2 * self.depth))

    @property
    def registers(self) -> int:
        """Registers of a thread: its sums, and operands of VECTOR indices of depth and of the next, which are loaded ahead."""
        return self.sums_m * self.sums_n + 2 * VECTOR * (self.sums_m + self.sums_n) // 2 + OTHER_REGISTERS

    def fits(self, target: CudaTarget) -> bool:
        """Return whether registers and shared memory suffice, and every thread has an element of each copy."""
        copied = min(self.rows, self.columns) * self.depth
        return (
            self.registers <= REGISTERS // self.threads
            and self.shared_bytes <= target.shared_bytes
            and copied >= self.threads
        )

    def depth_cycles(self, target: CudaTarget) -> float:
        """Return the cycles for each index of depth without waiting."""
        loads = (ceil(self.sums_m / VECTOR) + ceil(self.sums_n / VECTOR)) * self.warps
        multiply = self.rows * self.columns / RATE + loads / 4  # each of 4 schedulers starts one instruction a cycle
        return max(multiply, 2 * loads, self.copy_cycles)


def best_fma_tile(extents: Extents, dtype: str, target: CudaTarget) -> FmaTile:
    """Return the best tile by the model."""
    return best(fma_tiles(dtype, target), extents, target)


def fma_tiles(dtype: str, target: CudaTarget) -> Iterator[FmaTile]:
    """Yield the tiles that are compared: of 2 to 8 warps, each with the most stages that fit."""
    grids = ((8, 8), (16, 8), (8, 16), (16, 16), (32, 2), (32, 4), (64, 4), (64, 2), (64, 1), (32, 8), (2, 32), (4, 32))
    sizes = ((8, 8), (8, 4), (4, 8), (4, 4), (4, 2), (2, 4), (2, 2), (8, 2), (8, 1), (4, 1), (2, 1))
    for threads, sums, depth in product(grids, sizes, (8, 16)):
        for stages in (4, 3, 2):
            tile = FmaTile(*threads, *sums, dtype=dtype, depth=depth, stages=stages)
            if tile.fits(target):
                yield tile
                break
