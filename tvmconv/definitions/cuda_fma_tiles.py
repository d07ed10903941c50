"""Which part of a matrix multiplication on FMA units a block of threads computes, by a model of GPUs.

Each thread sums a tile of its own in registers. Counted in cycles of one multiprocessor, as in `cuda_tiles.py`: for one step of depth, a tile of rows x columns costs the most of

    multiplying    rows * columns / 128, and part of the loads, which take the same slots
    shared memory  each thread reads `sums_m` + `sums_n` numbers, by vectors of 4; a warp's vector, partly one for all, takes 2 cycles
    L2 cache       the tile's rows and columns come from there

For example 128 x 128 by 256 threads of 8 x 8: 128 cycles of multiplying, 8 warps * 4 vectors * 2 = 64 of shared memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import ceil

from ..cuda_target import CudaTarget
from ..problem import DTYPE_BYTES
from .cuda_tiles import MULTIPROCESSORS, REGISTERS, WARP, Extents

VECTOR = 4  # numbers of a 16-byte load from shared memory
RATE = (
    128  # multiply-adds of a multiprocessor in a cycle, on sm_80 with 64 as well as on later ones: only ratios matter
)
L2_RATE = 40  # bytes a cycle
# Registers of a thread apart from sums and operands: addresses, and what is on its way to shared memory.
OTHER_REGISTERS = 48
# As for tensor cores: a barrier and the first loads of a step; a block's first tiles and last stores.
STEP_LATENCY, BLOCK_LATENCY = 80, 1600
# Starting another launch, some 2 microseconds.
LAUNCH = 3000
# A split must leave so many steps that the first tiles' latency does not outweigh them.
LEAST_STEPS = 8
# Two for each of a multiprocessor's four schedulers.
BUSY_WARPS = 8


@dataclass(frozen=True)
class FmaTile:
    """How a block of threads computes its part of a matrix multiplication.

    Attributes
    ----------
    dtype
        Type of the operands.
    threads_m, threads_n
        Threads along rows and columns.
    sums_m, sums_n
        Sums of each thread along rows and columns.
    depth
        Of a step: what is in shared memory at a time, but for what is on its way.
    stages
        Steps in shared memory: the one that is multiplied, and those on their way.
    splits
        Parts of the depth, each by blocks of its own; another launch adds them.
    """

    dtype: str
    threads_m: int
    threads_n: int
    sums_m: int
    sums_n: int
    depth: int
    stages: int
    splits: int = 1

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
        """Elements after a row in shared memory, 16 bytes: rows then begin in different banks, and vectors where they may."""
        return 16 // DTYPE_BYTES[self.dtype]

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block, whichever index of an operand is the faster."""
        edge = self.rows + self.columns
        return self.stages * DTYPE_BYTES[self.dtype] * (edge * self.depth + self.pad * max(edge, 2 * self.depth))

    @property
    def registers(self) -> int:
        """Registers of a thread: its sums, and operands of VECTOR steps, twice as the next are loaded ahead."""
        return self.sums_m * self.sums_n + 2 * VECTOR * (self.sums_m + self.sums_n) // 2 + OTHER_REGISTERS

    def fits(self, target: CudaTarget) -> bool:
        """Whether a block has its registers and shared memory, and every thread an element of each copy."""
        copied = min(self.rows, self.columns) * self.depth
        return (
            self.registers <= REGISTERS // self.threads
            and self.shared_bytes <= target.shared_bytes
            and copied >= self.threads
        )

    def cycles(self, extents: Extents, target: CudaTarget) -> float:
        """Cycles of the busiest multiprocessor for all of `extents`."""
        warps = self.threads // WARP
        loads = (ceil(self.sums_m / VECTOR) + ceil(self.sums_n / VECTOR)) * warps
        multiply = self.rows * self.columns / RATE + loads / 4  # each of 4 schedulers starts one instruction a cycle
        l2 = (self.rows + self.columns) * DTYPE_BYTES[self.dtype] / L2_RATE
        blocks = self.splits * extents.batch * ceil(extents.rows / self.rows) * ceil(extents.columns / self.columns)
        multiprocessors = MULTIPROCESSORS[target.architectures[0]]
        rounds = ceil(blocks / multiprocessors)
        resident = min(REGISTERS // (self.threads * self.registers), target.shared_bytes // self.shared_bytes)
        together = min(rounds, max(1, resident))
        busy = min(1.0, 0.5 + 0.5 * together * warps / BUSY_WARPS)
        step = max(multiply, 2 * loads, l2) * self.depth / busy + STEP_LATENCY / together
        steps = ceil(extents.depth / self.depth / self.splits)
        return rounds * (steps * step + BLOCK_LATENCY / together) + self._adding(extents, multiprocessors)

    def _adding(self, extents: Extents, multiprocessors: int) -> float:
        """Cycles of adding the parts of a split depth, which are written and read as f32."""
        if self.splits == 1:
            return 0.0
        return LAUNCH + 2 * 4 * self.splits * extents.batch * extents.rows * extents.columns / (
            L2_RATE * multiprocessors
        )


def best_fma_tile(extents: Extents, dtype: str, target: CudaTarget) -> FmaTile:
    """Return the tile that the model finds best."""
    candidates = [
        replace(tile, splits=splits)
        for tile, splits in product(fma_tiles(dtype, target), (1, 2, 4, 8, 16))
        if splits == 1 or extents.depth >= splits * LEAST_STEPS * tile.depth
    ]
    return min(candidates, key=lambda tile: tile.cycles(extents, target))


def fma_tiles(dtype: str, target: CudaTarget) -> Iterator[FmaTile]:
    """Return the tiles that an expert would consider: of 2 to 8 warps, as square as threads and sums allow."""
    threads = (
        (8, 8),
        (16, 8),
        (8, 16),
        (16, 16),
        (32, 2),
        (32, 4),
        (64, 4),
        (64, 2),
        (64, 1),
        (32, 8),
        (2, 32),
        (4, 32),
    )
    sums = ((8, 8), (8, 4), (4, 8), (4, 4), (4, 2), (2, 4), (2, 2), (8, 2), (8, 1), (4, 1), (2, 1))
    for (threads_m, threads_n), (sums_m, sums_n), depth in product(threads, sums, (8, 16)):
        for stages in (4, 3, 2):
            tile = FmaTile(dtype, threads_m, threads_n, sums_m, sums_n, depth, stages)
            if tile.fits(target):
                yield tile
                break
