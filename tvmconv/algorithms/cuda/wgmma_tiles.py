"""Choose a block's tile of a convolution by wgmma (`lowering/cuda/native/wgmma.cuh`): coverage and cost.

A tile is a box of output pixels times channels, because tensor maps copy boxes. Of the 128 rows of a product, one image of 14 x 14 pixels
fills 98 by a box of 7 x 14; 32 images fill all by 2 x 2 pixels of each.

Costs are in cycles of one multiprocessor. For example 128 rows x 256 channels in f16: a step of 64 multiplies for
128 * 256 * 64 / 2048 = 1024 cycles and copies (128 + 256) * 128 bytes from L2 in 910. With few output channels L2 is the bound: 256
rows x 64 channels multiply for 512 cycles and copy for 760; if all nine taps of a 3x3 window read one box of data, for some 250.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from math import ceil, gcd, prod

from ...problem import Problem
from ...targets.cuda import CudaTarget
from ..cpu.model.cost import Counts
from ..data_dependence import covers_data
from ..flatten import flatten
from .blocks import MULTIPROCESSORS, WARP
from .cost import CYCLES, MEMORY_RATE
from .wgmma_packing import ALIGNED, COLUMNS, MOST_STRIDE, SPANS, Packing, depth_of, mixes_groups, packings
from .wgmma_phases import count_phases, phases_of

# Elements of depth up to which a step of short rows has several taps, as barriers cost the same for fewer.
_STEP_DEPTH = 96
# Multiply-adds of a multiprocessor per cycle, which defines the cycle: an H200 reaches 755 TFLOP/s, that is 1.4 GHz, while all else runs
# at 1.9 GHz. The other rates were fitted to the times of 411 kernels on an H200, from which the model differs by 16 %
# (standard deviation; benchmarks/results/gpu has most of them).
_RATE = 2048
# Bytes that shared memory reads or writes per cycle: 128 per cycle of its own clock.
_SHARED_RATE = 164
# Bytes from L2 per cycle if all multiprocessors copy, and if few do; and the share that copies of shorter rows reach.
_L2_RATE, _MOST_L2_RATE = 56, 95
_SHARE_OF_SPAN = {64: 1.0, 32: 0.75, 16: 0.39}
# Factor of multiplying if matrices begin at any row of a box of data (for an unknown reason).
_HALO = 1.39
# Latency of a copy; and stages that no copy can fill: one is multiplied, one released a step later.
_COPY_CYCLES, _STAGES_KEPT = 1030, 2
# Cycles between the last multiplication and the next tile's first (two barriers); and of converting and storing an output.
_STORE_CYCLES, _STORE_CYCLES_OF_EACH = 640, 0.082
# Factor of these cycles on half of the threads, while the others multiply.
_ALTERNATE = 2.35
# Latency of a launch's first copies and last stores.
_LATENCY = 3200
# Rows x columns; the sums of 256 x 256 would take all registers of two warpgroups.
_SIZES = tuple((rows, columns) for rows in (128, 256) for columns in COLUMNS if rows * columns < 65536)
# Largest rows times columns of a tile whose sums one warpgroup has.
_MOST_ALTERNATE = 16384
# Numbers of stages: of the filter, and of boxes of data if each step has one.
_STAGES = (12, 8, 6, 4, 3)
# Stages of boxes of data that all taps read: one is multiplied, one being copied.
_HALO_STAGES = 2
_BARRIER_BYTES = 16
_ALIGNMENT = 1024
# Output channels of a box.
_MOST_TOGETHER = 64
# Pixels of a box of data with channels first, 128 bytes.
PLANE_PIXELS = 64
# CUDA Driver API, cuTensorMapEncodeTiled: most elements that a box spans along an axis.
_MOST_TRAVERSED = 256
# Approximate loads from shared memory, and stores, of a warp per cycle, where threads store the output.
_STORES = 0.25
# Elements of a 32-byte sector of L2, and approximate sectors that it takes per cycle of a multiprocessor.
_SECTOR, _SECTORS = 16, 1.7
# Most tensor maps of the output, of 128 bytes each: with those of the operands, they are parameters of at most 4096 bytes.
MOST_PHASES = 27


@dataclass(frozen=True)
class WgmmaTile:
    """Part of the output that a block computes at a time.

    Attributes
    ----------
    rows
        Rows of the product, 128 or 256.
    columns
        Output channels: 32, 64, 128 or 256.
    stages
        Steps of depth in shared memory: those that are multiplied, and those being copied.
    box
        Output pixels: images, then three spatial axes, of which the first may have one pixel.
    span
        Elements of depth of a row: 64, 32 or 16.
    halo
        Pixels beyond the box along the last two axes, if all taps along these read one box of data; zeros if each tap has a box of
        its own. Rows of the product are pixels of the box of data, including some of the halo.
    together
        Taps of a step.
    alternate
        Whether each warpgroup computes every other tile, and stores its outputs while the other one multiplies.
    """

    rows: int
    columns: int
    stages: int
    box: tuple[int, int, int, int]
    span: int
    halo: tuple[int, int] = (0, 0)
    together: int = 1
    alternate: bool = False

    @property
    def has_halo(self) -> bool:
        """Return whether all taps read one box of data."""
        return any(self.halo)

    @property
    def data_stages(self) -> int:
        """Number of boxes of data in shared memory."""
        return _HALO_STAGES if self.has_halo else self.stages

    @property
    def data_rows(self) -> int:
        """Rows of a box of data in shared memory, including those beyond the box that the last tap multiplies."""
        h, w = self.halo
        return self.rows + h * (self.box[3] + w) + w

    @property
    def data_bytes(self) -> int:
        """Shared memory of a box of data."""
        return ceil(self.data_rows * self.row_bytes / _ALIGNMENT) * _ALIGNMENT

    @property
    def filter_bytes(self) -> int:
        """Shared memory of a step of the filter."""
        return self.together * self.columns * self.row_bytes

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of depth."""
        return 2 * self.span

    @property
    def columns_together(self) -> int:
        """Output channels of a box of the filter or the output."""
        return min(self.columns, _MOST_TOGETHER)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block: stages, one or two tiles of the output, barriers, and alignment."""
        stages = self.data_stages * (self.data_bytes + _BARRIER_BYTES) + self.stages * (
            self.filter_bytes + _BARRIER_BYTES
        )
        return stages + (1 + self.alternate) * self.rows * self.columns * 2 + _BARRIER_BYTES + _ALIGNMENT

    def tiles(self, problem: Problem) -> int:
        """Return the number of tiles of a problem."""
        boxes = prod(ceil(extent / b) for extent, b in zip(pixels(problem), self.box, strict=True))
        return boxes * ceil(problem.out_channels / self.columns) * count_phases(problem)

    def cycles(self, packing: Packing) -> float:
        """Return the cycles of the busiest multiprocessor, without those of the layout's copies."""
        problem = packing.problem
        phases = phases_of(problem).phases
        tiles = self.tiles(problem)
        blocks = min(tiles, MULTIPROCESSORS[90])
        l2_rate = min(_MOST_L2_RATE, _L2_RATE * MULTIPROCESSORS[90] / blocks) * _SHARE_OF_SPAN[self.span]
        vector = self.store_vector(problem)
        storing = _STORE_CYCLES + _STORE_CYCLES_OF_EACH * self.rows * self.columns
        if vector:
            run = run_of(problem, self.box) if problem.data_format == "NCX" else self.columns
            sectors = self.rows * self.columns / min(run, _SECTOR)
            storing += max(self.rows * self.columns / (vector * WARP * _STORES), sectors / _SECTORS)
        multiplying = [self._phase_cycles(problem, phase.taps, l2_rate) for phase in phases]
        cycles, last = [each + storing for each in multiplying], 0.0
        if self.alternate:
            # Nothing hides the stores of the last tile.
            last = _ALTERNATE * storing
            cycles = [max(each, (each + last) / 2) for each in multiplying]
        memory = packing.nbytes / MULTIPROCESSORS[90] / MEMORY_RATE
        return max(busiest(cycles, tiles // len(phases)) + last + _LATENCY, memory)

    def _phase_cycles(self, problem: Problem, taps: tuple[int, ...], l2_rate: float) -> float:
        """Return the cycles of a tile whose outputs sum so many taps along each axis: those of the bottleneck."""
        chunks, steps = ceil(depth_of(problem, self.columns) / self.span), prod(taps) / self.together
        boxes = taps[0] if self.has_halo else prod(taps)
        written = boxes * self.data_bytes + steps * self.filter_bytes
        multiplying = prod(taps) * self.rows * self.columns * self.span / _RATE
        # Each 64 rows read all columns.
        read = prod(taps) * self.rows // 64 * (64 + self.columns) * self.row_bytes
        waiting = steps * _COPY_CYCLES / (self.stages - _STAGES_KEPT)
        if self.has_halo:
            waiting = max(waiting, boxes * (_COPY_CYCLES + self.data_bytes / l2_rate) / (self.data_stages - 1))
        busy = max(multiplying, written / l2_rate, (written + read) / _SHARED_RATE, waiting)
        return chunks * busy * (_HALO if self.has_halo else 1)

    def store_vector(self, problem: Problem) -> int | None:
        """Return the elements that a thread stores as a vector; None if copies of boxes store the output."""
        if problem.data_format == "NXC":
            return None if problem.out_channels % ALIGNED == 0 else gcd(problem.out_channels, ALIGNED)
        # A vector must not cross rows of the output or, where rows follow each other, planes of height and width.
        extent = prod(problem.out_spatial[-2:]) if _joins_rows(problem, self.box) else problem.out_spatial[-1]
        return gcd(extent, run_of(problem, self.box), ALIGNED)


def run_of(problem: Problem, box: tuple[int, ...]) -> int:
    """Return the number of a box's pixels that are contiguous in a plane of the output."""
    if phases_of(problem).steps[-1] > 1:
        return 1
    return box[3] * box[2] if _joins_rows(problem, box) else box[3]


def _joins_rows(problem: Problem, box: tuple[int, ...]) -> bool:
    """Return whether rows of a box follow each other in the output: whole rows of one phase."""
    return box[3] == problem.out_spatial[-1] and phases_of(problem).steps[-2:] == (1, 1)


def busiest(cycles: list[float], tiles: int) -> float:
    """Return the cycles of the busiest block, if each phase has `tiles` tiles, which wgmma.cuh distributes."""
    blocks = MULTIPROCESSORS[90]

    def dealt(tiles: int, block: int) -> int:
        rounds, rest = divmod(tiles, blocks)
        return rounds + (block < rest if rounds % 2 == 0 else block >= blocks - rest)

    def load(block: int) -> float:
        counts = [dealt(number * tiles, block) for number in range(len(cycles) + 1)]
        return sum(each * (after - before) for each, before, after in zip(cycles, counts, counts[1:], strict=False))

    return max(map(load, range(blocks)))


def as_3d(problem: Problem) -> Problem:
    """Return the flattened problem with three spatial axes, by leading axes of one pixel."""
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
    """Return the batch and the extents of the largest phase's outputs, of a problem with three axes."""
    return (problem.batch, *phases_of(problem).outputs)


@lru_cache(maxsize=64)
def _best_packing(problem: Problem, target: CudaTarget) -> Packing | None:
    """Return the best layout by the model of a problem's arrays; None if there is none."""

    def cycles(packing: Packing) -> float:
        return packing.cycles + _tiles(packing, target)[0].cycles(packing)

    return min(packings(as_3d(problem)), key=cycles, default=None)


def packing_of(problem: Problem, target: CudaTarget) -> Packing:
    """Return the best layout by the model of a covered problem's arrays."""
    packing = _best_packing(problem, target)
    assert packing is not None
    return packing


def wgmma_tiles(problem: Problem, target: CudaTarget) -> tuple[WgmmaTile, ...]:
    """Return tiles of each size, without and with a halo, by all threads and alternating, the best by the model first."""
    return _tiles(packing_of(problem, target), target)


@lru_cache(maxsize=64)
def _tiles(packing: Packing, target: CudaTarget) -> tuple[WgmmaTile, ...]:
    flat, made = packing.problem, []
    # Groups that are multiplied alone need whole spans of their channels.
    alone = flat.groups > 1 and not mixes_groups(flat)
    spans = [span for span in SPANS if not alone or flat.in_channels // flat.groups % span == 0]
    for rows, columns in _SIZES:
        if packing.columns not in (0, columns):
            continue
        turns = (False, True) if rows * columns <= _MOST_ALTERNATE else (False,)
        for halo, alternate in product(dict.fromkeys(((0, 0), _halo(packing))), turns):
            tiles = [_tile(packing, target, rows, columns, halo, span, alternate) for span in spans]
            fitting = [tile for tile in tiles if tile is not None]
            made += [min(fitting, key=lambda tile: tile.cycles(packing))] if fitting else []
    return tuple(sorted(made, key=lambda tile: tile.cycles(packing)))


def _halo(packing: Packing) -> tuple[int, int]:
    """Return the pixels that taps read beyond a box along the last two axes; zeros if neighbouring outputs' data are not adjacent."""
    phases = phases_of(packing.problem)
    # Matrices with pixels as the faster index begin at multiples of eight pixels.
    if packing.planes or phases.strides[1:] != (1, 1):
        return 0, 0
    h, w = (max((phase.taps[axis] - 1) * phases.dilations[axis] for phase in phases.phases) for axis in (1, 2))
    return max(h, 0), max(w, 0)


def _tile(
    packing: Packing, target: CudaTarget, rows: int, columns: int, halo: tuple[int, int], span: int, alternate: bool
) -> WgmmaTile | None:
    """Return the tile with the most stages; None if there is no box, or no room."""
    flat = packing.problem
    box = _box(flat, rows, halo, packing.planes)
    if box is None:
        return None
    together = _together(flat, span) if any(halo) else 1
    tile = WgmmaTile(rows, columns, 1, box, span, halo, together, alternate)
    stages = stages_of(tile, target)
    return replace(tile, stages=stages[0]) if stages else None


def _together(flat: Problem, span: int) -> int:
    """Return the number of consecutive taps of each step; 1 for transposed convolutions, whose taps are not consecutive."""
    if flat.op != "convolution":
        return 1
    taps = prod(flat.kernel[1:])
    return max(each for each in range(1, taps + 1) if taps % each == 0 and each * span <= max(span, _STEP_DEPTH))


def stages_of(tile: WgmmaTile, target: CudaTarget) -> list[int]:
    """Return the numbers of stages that a tile may have, the most first."""
    return [each for each in _STAGES if replace(tile, stages=each).shared_bytes <= target.shared_bytes]


@lru_cache(maxsize=64)
def _box(problem: Problem, rows: int, halo: tuple[int, int], planes: bool) -> tuple[int, int, int, int] | None:
    """Return the box of at most `rows` pixels with the fewest boxes in the output; among equals, that with the longest rows.

    For planes of the output, longer rows count as somewhat fewer boxes.
    """
    strides = (1, *phases_of(problem).strides)
    extents = pixels(problem)
    beyond = (0, 0, *halo)
    # Smallest extents for each number of boxes along an axis.
    options = [
        [
            b
            for b in range(1, min(extent, rows, _MOST_TRAVERSED // s - more) + 1)
            if ceil(extent / ceil(extent / b)) == b
        ]
        for extent, s, more in zip(extents, strides, beyond, strict=True)
    ]
    if any(halo):  # one image and one slice
        options[:2] = [1], [1]
    if planes:
        options[3] = [b for b in range(PLANE_PIXELS, rows + 1, PLANE_PIXELS) if b < extents[3] + PLANE_PIXELS]

    def product_rows(box: tuple[int, ...]) -> int:
        return box[0] * box[1] * ((box[2] - 1) * (box[3] + halo[1]) + box[3])

    boxes = (box for box in product(*options) if product_rows(box) <= rows)

    def cost(box: tuple[int, ...]) -> tuple[float, tuple[int, ...]]:
        count = float(prod(ceil(extent / b) for extent, b in zip(extents, box, strict=True)))
        if problem.data_format == "NCX":
            # Outputs in short runs are stored by more transactions (about a tenth of a tile's time).
            count *= 0.9 + 0.1 * _SECTOR / min(run_of(problem, box), _SECTOR)
        return count, tuple(-b for b in reversed(box))

    best = min(boxes, key=cost, default=None)
    return None if best is None else (best[0], best[1], best[2], best[3])


def covers_wgmma(problem: Problem, target: CudaTarget, mixed: bool) -> str | None:
    """Return None if wgmma computes the problem on the target (`mixed`: by tiles of several groups), else the reason why not."""
    if not target.specific:
        return "its instructions are those of sm_90a"
    if problem.dtype not in ("f16", "bf16"):
        return f"it multiplies f16 and bf16, not {problem.dtype}"
    if mixes_groups(problem) != mixed:
        wanted = f"multiples of {min(SPANS)} input and {min(COLUMNS)} output channels a group are multiplied alone"
        return wanted if problem.groups > 1 else "there is one group"
    if why := covers_data(problem, target):
        return why
    if (phases := count_phases(flatten(problem))) > MOST_PHASES:
        return f"each of {phases} stride phases needs a map of the output, and a launch has {MOST_PHASES}"
    if _best_packing(problem, target) is None:
        return f"it is for strides up to {MOST_STRIDE}, and for data that 32-bit indices reach with zeros added"
    return None


def estimate_wgmma(problem: Problem, target: CudaTarget) -> Counts:
    """Return the cycles with the best tile, and those of copies before."""
    packing = packing_of(problem, target)
    return {CYCLES: packing.cycles + wgmma_tiles(problem, target)[0].cycles(packing)}
