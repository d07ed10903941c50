"""Which part of a convolution a block computes by wgmma (`lowering/native/wgmma.cuh`), which problems that is for, what it costs.

A tile is a box of output pixels times channels, because copies take boxes. Of 128 rows that are multiplied, one image of
14 x 14 pixels fills 98 by 7 x 14 of them; 32 images fill all by 2 x 2 of each.

Counted in cycles of one multiprocessor, as in `blocks.py`. For example 128 rows x 256 channels in f16: a step of 64
multiplies for 128 * 256 * 64 / 2048 = 1024 cycles, keeps shared memory busy for as many, and copies (128 + 256) * 128 bytes
from the L2 cache in 1229.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import ceil, gcd, prod

from ...problem import Problem
from ...targets.cuda import CudaTarget
from ..cpu.cost import Counts
from ..data_dependence import covers_data
from ..flatten import flatten
from .blocks import L2_RATE, MULTIPROCESSORS, WARP
from .cost import CYCLES
from .wgmma_packing import ALIGNED, MOST_STRIDE, Packing, packings
from .wgmma_phases import count_phases, phases_of

# Of 16-bit elements: those of the 128 bytes that a row has in shared memory, the depth of a step.
SPAN = 64
ROW_BYTES = 128
# 16-bit multiply-adds of a multiprocessor in a cycle.
_RATE = 2048
# Bytes that shared memory gives or takes in a cycle.
_SHARED_RATE = 128
# From the last multiplication to the next tile's first: two barriers, conversion, and shared memory written (about).
_STORE_CYCLES = 1000
# A launch's first copies and last stores.
_LATENCY = 1600
# Rows x columns; the sums of 256 x 256 would take all registers of two groups.
_SIZES = ((128, 64), (128, 128), (128, 256), (256, 64), (256, 128))
_STAGES = (8, 6, 4, 3)
_BARRIER_BYTES = 16
_ALIGNMENT = 1024
# CUDA Driver API, cuTensorMapEncodeTiled: elements that a box traverses along an axis.
_MOST_TRAVERSED = 256
# Where threads store elements, not copies: loads from shared memory and stores of a warp in a cycle (about).
_STORES = 0.25
# Maps of the output that a launch takes beside two others, of 128 bytes each: its parameters have at most 4096 bytes.
MOST_PHASES = 27


@dataclass(frozen=True)
class WgmmaTile:
    """The part of the output that a block computes at a time.

    Attributes
    ----------
    rows
        Pixels that are multiplied, 128 or 256; the box has at most so many.
    columns
        Output channels: 64, 128 or 256.
    stages
        Steps of depth in shared memory: those that are multiplied, and those on their way.
    box
        Output pixels: images, then spatial axes (three, the first of which may be of one pixel).
    """

    rows: int
    columns: int
    stages: int
    box: tuple[int, int, int, int]

    @property
    def stage_bytes(self) -> int:
        """Shared memory of a stage."""
        return (self.rows + self.columns) * ROW_BYTES

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block: stages, a tile of the output, barriers, and what alignment may take."""
        out = self.rows * self.columns * 2
        return self.stages * (self.stage_bytes + _BARRIER_BYTES) + out + _ALIGNMENT

    def tiles(self, problem: Problem) -> int:
        """How many there are of a problem."""
        boxes = prod(ceil(extent / b) for extent, b in zip(pixels(problem), self.box, strict=True))
        return boxes * ceil(problem.out_channels / self.columns) * count_phases(problem)

    def cycles(self, problem: Problem) -> float:
        """Cycles of the busiest multiprocessor."""
        phases = phases_of(problem).phases
        multiplying = self.rows * self.columns * SPAN / _RATE
        copying = self.stage_bytes / L2_RATE
        # Written once; every 64 rows are multiplied with all columns.
        shared = (self.stage_bytes + self.rows // 64 * (64 + self.columns) * ROW_BYTES) / _SHARED_RATE
        step = ceil(problem.in_channels / SPAN) * max(multiplying, copying, shared)
        each, vector = self.tiles(problem) // len(phases), self.store_vector(problem)
        stored = _STORE_CYCLES + (self.rows * self.columns / (vector * WARP * _STORES) if vector else 0)
        return busiest([prod(phase.taps) * step + stored for phase in phases], each) + _LATENCY

    def store_vector(self, problem: Problem) -> int | None:
        """Return how many elements of a tile a thread stores together; None if copies of boxes store them."""
        if problem.data_format == "NXC":
            return None if problem.out_channels % ALIGNED == 0 else gcd(problem.out_channels, ALIGNED)
        # Rows of the output, and of boxes, are of whole vectors.
        return gcd(problem.out_spatial[-1], self.box[-1], ALIGNED) if phases_of(problem).steps[-1] == 1 else 1


def busiest(cycles: list[float], tiles: int) -> float:
    """Return the cycles of the block that has the most, where each phase has so many tiles, as wgmma.cuh deals them out."""
    blocks = MULTIPROCESSORS[90]

    def dealt(tiles: int, block: int) -> int:
        rounds, rest = divmod(tiles, blocks)
        return rounds + (block < rest if rounds % 2 == 0 else block >= blocks - rest)

    def load(block: int) -> float:
        counts = [dealt(number * tiles, block) for number in range(len(cycles) + 1)]
        return sum(each * (after - before) for each, before, after in zip(cycles, counts, counts[1:], strict=False))

    return max(map(load, range(blocks)))


def as_3d(problem: Problem) -> Problem:
    """Return the flattened problem with three spatial axes, the first of which may be of one pixel."""
    flat = flatten(problem)
    missing = 3 - flat.rank
    ones, zeros = (1,) * missing, (0,) * missing
    return flat.with_(
        in_spatial=ones + flat.in_spatial,
        out_spatial=ones + flat.out_spatial,
        kernel=ones + flat.kernel,
        strides=ones + flat.strides,
        dilations=ones + flat.dilations,
        pads_begin=zeros + flat.pads_begin,
        pads_end=zeros + flat.pads_end,
    )


def pixels(problem: Problem) -> tuple[int, ...]:
    """Return the extents of a phase's outputs of a problem of three axes, without channels."""
    return (problem.batch, *phases_of(problem).outputs)


@lru_cache(maxsize=64)
def _best_packing(problem: Problem, target: CudaTarget) -> Packing | None:
    """Return the best way by the model to read a problem's arrays; None if there is none."""

    def cycles(packing: Packing) -> float:
        return packing.cycles + _tiles(packing.problem, target)[0].cycles(packing.problem)

    return min(packings(as_3d(problem)), key=cycles, default=None)


def packing_of(problem: Problem, target: CudaTarget) -> Packing:
    """Return the best way by the model to read a covered problem's arrays."""
    packing = _best_packing(problem, target)
    assert packing is not None
    return packing


def wgmma_tiles(problem: Problem, target: CudaTarget) -> tuple[WgmmaTile, ...]:
    """Return a tile of each size, with the most stages that fit, the best by the model first."""
    return _tiles(packing_of(problem, target).problem, target)


@lru_cache(maxsize=64)
def _tiles(flat: Problem, target: CudaTarget) -> tuple[WgmmaTile, ...]:
    made = []
    for rows, columns in _SIZES:
        box = _box(flat, rows)
        stages = stages_of(WgmmaTile(rows, columns, 1, box), target)
        made.append(WgmmaTile(rows, columns, stages[0], box))
    return tuple(sorted(made, key=lambda tile: tile.cycles(flat)))


def stages_of(tile: WgmmaTile, target: CudaTarget) -> list[int]:
    """Return how many stages a tile may have, the most first."""
    sizes = ((stages, WgmmaTile(tile.rows, tile.columns, stages, tile.box).shared_bytes) for stages in _STAGES)
    return [stages for stages, size in sizes if size <= target.shared_bytes]


def _box(problem: Problem, rows: int) -> tuple[int, int, int, int]:
    """Return the box of at most `rows` pixels by which the fewest boxes cover the output; of equals, the longest rows."""
    strides = (1, *phases_of(problem).strides)
    extents = pixels(problem)
    # Of boxes that cover an axis by as many, the smallest.
    options = [
        [b for b in range(1, min(extent, rows, _MOST_TRAVERSED // s) + 1) if ceil(extent / ceil(extent / b)) == b]
        for extent, s in zip(extents, strides, strict=True)
    ]
    boxes = (box for box in product(*options) if prod(box) <= rows)

    def cost(box: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
        count = prod(ceil(extent / b) for extent, b in zip(extents, box, strict=True))
        return count, tuple(-b for b in reversed(box))

    n, d, h, w = min(boxes, key=cost)
    return n, d, h, w


def covers_wgmma(problem: Problem, target: CudaTarget) -> str | None:
    """Return None if wgmma computes the problem on the target, else why not."""
    if not target.specific:
        return "its instructions are those of sm_90a"
    if problem.dtype not in ("f16", "bf16"):
        return f"it multiplies f16 and bf16, not {problem.dtype}"
    if problem.groups > 1:
        return "copies of boxes are for convolutions of one group"
    if why := covers_data(problem, target):
        return why
    if (phases := count_phases(flatten(problem))) > MOST_PHASES:
        return f"each of {phases} stride phases needs a map of the output, and a launch has {MOST_PHASES}"
    if _best_packing(problem, target) is None:
        return (
            f"boxes leave out at most {MOST_STRIDE - 1} of {MOST_STRIDE} pixels, or data with zeros added are too large"
        )
    return None


def estimate_wgmma(problem: Problem, target: CudaTarget) -> Counts:
    """Cycles with the best tile, and of what is copied before."""
    packing = packing_of(problem, target)
    return {CYCLES: packing.cycles + wgmma_tiles(problem, target)[0].cycles(packing.problem)}
