"""Which part of a matrix multiplication a block of warps computes: a model of NVIDIA GPUs, explained by its arithmetic.

Counted in cycles of one multiprocessor; only ratios matter. For one step of depth, a tile of rows x columns costs the
most of

    multiplying  rows * columns / RATE
    shared memory  the tile is written once, and each warp reads its rows and columns, at 128 bytes a cycle
    L2 cache  the tile's rows and columns come from there, at about 40 bytes a cycle for each multiprocessor

For example 128 x 128 in f16 by four warps of 64 x 64 on sm_80: 16 cycles of multiplying, 256 * 2 / 128 + 4 * 128 * 2 /
128 = 12 of shared memory, 256 * 2 / 40 = 13 of L2; half of the rows are bound by L2. Tiles wait for nothing else as
long as others of the same multiprocessor have work.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import ceil

from ..cuda_target import CudaTarget
from ..problem import DTYPE_BYTES

FRAGMENT = 16
WARP = 32
REGISTERS = 65536
# Multiprocessors of the card that an architecture is best known by: A100, A10, L40, H100 SXM, B200, RTX 5090.
MULTIPROCESSORS = {80: 108, 86: 72, 89: 142, 90: 132, 100: 148, 120: 170}
# 16-bit multiply-adds of a multiprocessor in a cycle by mma.sync, TF32 at half of it. sm_90 has 2048 by wgmma, and
# about 62 % of that by mma.sync; later ones are taken to be the same.
_RATE = {80: 1024, 86: 512, 89: 512, 90: 1280, 100: 1280, 120: 512}
_SHARED_RATE = 128
_L2_RATE = 40
# Memory, likewise: 3.35 TB/s at 1.7 GHz on 132 multiprocessors.
_MEMORY_RATE = 15
# A step of the loop over depth: a barrier (about 30 cycles), a load of fragments (30) and the first multiplication (35).
_STEP_LATENCY = 100
# A block's first tiles come from memory (about 800 cycles), its last leave by shared memory and stores (about as many).
_BLOCK_LATENCY = 1600
# From the end of one kernel to the first results of the next: about 2 microseconds.
_LAUNCH = 3000
# A split must leave so many steps that the first tiles' latency does not outweigh them.
_LEAST_STEPS = 8
# Blocks of one multiprocessor hide each other's waiting; this many warps keep its four schedulers busy.
_BUSY_WARPS = 8
# Fragments of sums that a warp has room for; and where single elements are copied, up to 64 of them by registers.
MOST_SUMS, MOST_SUMS_BY_ELEMENTS = 16, 8
# Registers of a thread apart from sums and operands: addresses of what is copied, and of fragments.
_OTHER_REGISTERS = 56


@dataclass(frozen=True)
class Extents:
    """A batch of matrix multiplications [rows, depth] x [depth, columns]."""

    batch: int
    rows: int
    columns: int
    depth: int

    @property
    def products(self) -> int:
        """Multiplications of all."""
        return self.batch * self.rows * self.columns * self.depth


@dataclass(frozen=True)
class Tile:
    """How a block of warps computes its part of a matrix multiplication.

    Attributes
    ----------
    dtype
        Type of the operands.
    warps_m, warps_n
        Warps along rows and columns.
    fragments_m, fragments_n
        16x16 sums of each warp along rows and columns.
    depth
        Of a step: what is in shared memory at a time, but for what is on its way.
    stages
        Steps in shared memory: the one that is multiplied, and those on their way.
    splits
        Parts that the depth is cut into, each computed by a block of its own; a second kernel adds them.
    """

    dtype: str
    warps_m: int
    warps_n: int
    fragments_m: int
    fragments_n: int
    depth: int
    stages: int
    splits: int = 1

    @property
    def warps(self) -> int:
        """Warps of a block."""
        return self.warps_m * self.warps_n

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
        """Shared memory of a block: operands in their stages, then, in the same place, f32 sums; each row 32 bytes longer."""
        size = DTYPE_BYTES[self.dtype]
        # Either operand may have depth as the faster index or not: 8 elements more for each of the longer side's rows.
        operands = (self.rows + self.columns) * self.depth + 8 * (self.rows + self.columns + 2 * self.depth)
        return max(size * operands * self.stages, 4 * (self.rows + 8) * (self.columns + 8))

    @property
    def registers(self) -> int:
        """Registers of a thread: 8 for each sum, 4 for each fragment of an operand (ptxas: 210 with 4 x 4)."""
        return 8 * self.sums + 4 * (self.fragments_m + self.fragments_n) + _OTHER_REGISTERS

    @property
    def sums(self) -> int:
        """Fragments of sums of a warp."""
        return self.fragments_m * self.fragments_n

    def fits(self, target: CudaTarget) -> bool:
        """Whether a block has its registers and shared memory, and every thread a 16-byte vector of each copy."""
        most = min(255, REGISTERS // (self.warps * WARP))
        copied = min(self.rows, self.columns) * self.depth * DTYPE_BYTES[self.dtype]
        return self.registers <= most and self.shared_bytes <= target.shared_bytes and copied >= self.warps * WARP * 16

    def cycles(self, extents: Extents, target: CudaTarget) -> float:
        """Cycles of the busiest multiprocessor for all of `extents`."""
        first, size = target.architectures[0], DTYPE_BYTES[self.dtype]
        rate = _RATE[first] * 2 / size
        edge = (self.rows + self.columns) * size
        read = self.warps * (self.fragments_m + self.fragments_n) * FRAGMENT * size
        each = max(self.rows * self.columns / rate, (edge + read) / _SHARED_RATE, edge / _L2_RATE)
        steps = ceil(extents.depth / self.depth / self.splits)
        blocks = self.splits * extents.batch * ceil(extents.rows / self.rows) * ceil(extents.columns / self.columns)
        rounds = ceil(blocks / MULTIPROCESSORS[first])
        together = min(rounds, self._resident(target))
        busy = min(1.0, 0.5 + 0.5 * together * self.warps / _BUSY_WARPS)
        step = each * self.depth / busy + _STEP_LATENCY / together
        return rounds * (steps * step + _BLOCK_LATENCY / together) + self._adding(extents, MULTIPROCESSORS[first])

    def _adding(self, extents: Extents, multiprocessors: int) -> float:
        """Cycles of adding the parts of a split depth, which are written and read as f32."""
        if self.splits == 1:
            return 0.0
        moved = 2 * 4 * self.splits * extents.batch * extents.rows * extents.columns
        return _LAUNCH + moved / (_MEMORY_RATE * multiprocessors)

    def _resident(self, target: CudaTarget) -> int:
        """Blocks that one multiprocessor has at a time."""
        by_registers = REGISTERS // (self.warps * WARP * self.registers)
        return max(1, min(by_registers, target.shared_bytes // self.shared_bytes))


def best_tile(extents: Extents, dtype: str, target: CudaTarget, most_sums: int = MOST_SUMS) -> Tile:
    """Return the tile that the model finds best, with at most so many fragments of sums a warp."""
    candidates = [
        replace(tile, splits=splits)
        for tile, splits in product(tiles(dtype, target), (1, 2, 4, 8, 16))
        if tile.sums <= most_sums and (splits == 1 or extents.depth >= splits * _LEAST_STEPS * tile.depth)
    ]
    return min(candidates, key=lambda tile: tile.cycles(extents, target))


def tiles(dtype: str, target: CudaTarget) -> Iterator[Tile]:
    """Return the tiles that an expert would consider.

    Of each size the most stages up to 4 that fit: an L2 hit takes some 250 cycles, a load from memory 600 or more, a step
    of a large tile 500.
    """
    depths = (32, 64) if dtype != "f32" else (16, 32)
    arrangements = ((1, 2), (2, 1), (2, 2), (1, 4), (4, 1), (2, 4), (4, 2))
    for (warps_m, warps_n), m, n, depth in product(arrangements, (1, 2, 4), (1, 2, 4), depths):
        for stages in (4, 3, 2):
            tile = Tile(dtype, warps_m, warps_n, m, n, depth, stages)
            if tile.fits(target):
                yield tile
                break
