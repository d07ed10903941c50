"""Model the time of a block of threads that computes a tile of a matrix multiplication, for any of a GPU's units.

A model of NVIDIA GPUs in cycles of one multiprocessor, of which only ratios matter. A tile is computed in steps of its depth. A step takes
the cycles of the units, more if there are few warps to hide each other's waiting, and a latency that only other blocks
of the same multiprocessor hide.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import product
from math import ceil
from typing import ClassVar, TypeVar

from ...dtypes import DTYPE_BYTES
from ...targets.cuda import CudaTarget

WARP = 32
REGISTERS = 65536
# Multiprocessors of each architecture's best-known card: A100, A10, L40, H100 SXM, B200, RTX 5090.
MULTIPROCESSORS = {80: 108, 86: 72, 89: 142, 90: 132, 100: 148, 120: 170}
# Bytes per cycle from the L2 cache to each multiprocessor.
L2_RATE = 40
# A block's first tiles come from memory (about 800 cycles), its last ones leave through shared memory (about as many).
_BLOCK_LATENCY = 1600
# Cycles from the end of one kernel to the first results of the next: about 2 microseconds.
LAUNCH = 3000
# Least steps of each part of a split depth, so that the first tiles' latency does not outweigh them.
_LEAST_STEPS = 8
# Blocks of one multiprocessor hide each other's waiting; this many warps keep its four schedulers busy.
_BUSY_WARPS = 8
_SPLITS = (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class Extents:
    """A batch of matrix multiplications [rows, depth] x [depth, columns]."""

    batch: int
    rows: int
    columns: int
    depth: int

    @property
    def products(self) -> int:
        """Number of products."""
        return self.batch * self.rows * self.columns * self.depth


@dataclass(frozen=True, kw_only=True)
class BlockTile(ABC):
    """Tile of a matrix multiplication that a block of threads computes.

    Attributes
    ----------
    dtype
        Type of the operands.
    depth
        Depth of a step.
    stages
        Steps in shared memory: the one that is multiplied, and those being loaded.
    splits
        Parts of the depth, each computed by a block of its own; a second kernel adds them.
    """

    dtype: str
    depth: int
    stages: int
    splits: int = 1

    # Latency of a step: a barrier, and the loads of its first multiplication.
    STEP_LATENCY: ClassVar[float]
    # Bytes per cycle and multiprocessor at which parts of a split depth are written and read.
    PARTS_RATE: ClassVar[float]

    @property
    @abstractmethod
    def threads(self) -> int:
        """Threads of a block."""

    @property
    @abstractmethod
    def rows(self) -> int:
        """Rows of a block."""

    @property
    @abstractmethod
    def columns(self) -> int:
        """Columns of a block."""

    @property
    @abstractmethod
    def registers(self) -> int:
        """Registers of a thread."""

    @property
    @abstractmethod
    def shared_bytes(self) -> int:
        """Shared memory of a block."""

    @abstractmethod
    def depth_cycles(self, target: CudaTarget) -> float:
        """Return the cycles for each index of depth without waiting."""

    @property
    def warps(self) -> int:
        """Warps of a block."""
        return self.threads // WARP

    @property
    def copy_cycles(self) -> float:
        """Cycles of reading a tile's rows and columns from the L2 cache, for each index of depth."""
        return (self.rows + self.columns) * DTYPE_BYTES[self.dtype] / L2_RATE

    def cycles(self, extents: Extents, target: CudaTarget) -> float:
        """Return the cycles of the busiest multiprocessor for all of `extents`."""
        multiprocessors = MULTIPROCESSORS[target.architectures[0]]
        steps = ceil(extents.depth / self.depth / self.splits)
        blocks = self.splits * extents.batch * ceil(extents.rows / self.rows) * ceil(extents.columns / self.columns)
        rounds = ceil(blocks / multiprocessors)
        together = min(rounds, self._resident(target))
        busy = min(1.0, 0.5 + 0.5 * together * self.warps / _BUSY_WARPS)
        step = self.depth_cycles(target) * self.depth / busy + self.STEP_LATENCY / together
        return rounds * (steps * step + _BLOCK_LATENCY / together) + self._adding(extents, multiprocessors)

    def _adding(self, extents: Extents, multiprocessors: int) -> float:
        """Return the cycles of adding the parts of a split depth, which are written and read as f32."""
        if self.splits == 1:
            return 0.0
        transferred = 2 * 4 * self.splits * extents.batch * extents.rows * extents.columns
        return LAUNCH + transferred / (self.PARTS_RATE * multiprocessors)

    def _resident(self, target: CudaTarget) -> int:
        """Return the number of blocks resident on a multiprocessor."""
        by_registers = REGISTERS // (self.threads * self.registers)
        return max(1, min(by_registers, target.shared_bytes // self.shared_bytes))


AnyTile = TypeVar("AnyTile", bound=BlockTile)


def best(tiles: Iterable[AnyTile], extents: Extents, target: CudaTarget) -> AnyTile:
    """Return the best tile by the model, its depth split into parts if that is faster."""
    candidates = [
        replace(tile, splits=splits)
        for tile, splits in product(tiles, _SPLITS)
        if splits == 1 or extents.depth >= splits * _LEAST_STEPS * tile.depth
    ]
    return min(candidates, key=lambda tile: tile.cycles(extents, target))


def rounded_up(extent: int, multiple: int) -> int:
    """Return an extent rounded up to a multiple."""
    return -(-extent // multiple) * multiple
